/* An example kernel: the GET of the paper's section 5. A slot of a hash table has three buckets in 64 bytes.
 * Parameters: address of the slot (8), the key (8). */
#include "strom.h"

struct slot {
    uint64_t keys[3];
    uint64_t values[3];
    uint32_t lens[3];
    uint32_t zero;
};

struct lookup {
    uint64_t slot;
    uint64_t key;
};

static uint64_t key;
static int asked;

static int32_t found(void) {
    const struct slot *slot = (const struct slot *)strom.read;
    for (int bucket = 0; bucket < 3; bucket++) {
        if (slot->values[bucket] != 0 && slot->keys[bucket] == key) {
            if (strom_answer(STROM_DONE, slot->lens[bucket])) strom_read_to_wire(slot->values[bucket], slot->lens[bucket]);
            return STROM_RESTS;
        }
    }
    strom_answer(STROM_MISS, 0);
    return STROM_RESTS;
}

static int32_t kernel_step(void) {
    if (asked) {
        asked = 0;
        return found();
    }
    if (strom.what == STROM_NO_INPUT) return STROM_RESTS;
    strom_take();
    if (strom.what == STROM_PARAMS && strom.len == sizeof(struct lookup)) {
        const struct lookup *lookup = (const struct lookup *)strom.input;
        asked = 1, key = lookup->key;
        strom_read(lookup->slot, sizeof(struct slot));
    } else if (strom.ends & STROM_LAST) {
        strom_answer(STROM_BAD_PARAMS, 0);
    }
    return STROM_RESTS;
}

static void kernel_reset(void) { asked = 0; }
