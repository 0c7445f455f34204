/* The interface of a kernel: its streams, in a mailbox that it shares with the NIC.
 * program/sandbox/src/mailbox.rs of Remora draws the bytes. Copy this file as it is, and include it in one
 * source file, which defines kernel_step() and kernel_reset(). */
#ifndef STROM_H
#define STROM_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that one command reads at most, and that one packet brings. */
#define STROM_DMA 4096
/* Writes to memory that one step may make, and their bytes together. */
#define STROM_WRITES 64
#define STROM_WRITTEN 8192

enum { STROM_DONE = 0, STROM_MISS = 1, STROM_BAD_PARAMS = 3 }; /* from 64 on: the kernel's own */

/* The result of a step. */
enum {
    STROM_RESTS = 0, /* it waits for input and holds nothing */
    STROM_WAITS = 1, /* it waits for input or bytes, and holds state of the queue pair that it serves */
    STROM_AGAIN = 2  /* it has more to do now */
};

enum { STROM_NO_INPUT = 0, STROM_PARAMS = 1, STROM_DATA = 2, STROM_PASSING = 3 };
enum { STROM_FIRST = 1, STROM_LAST = 2 };
#define STROM_NOTHING UINT32_MAX

struct strom_write {
    uint64_t va;
    uint32_t len;
    uint32_t zero;
};

struct strom_mailbox {
    uint32_t version;
    uint32_t zero;
    uint64_t opcode;
    uint64_t va;      /* of what passes */
    uint32_t what;    /* STROM_PARAMS and so on */
    uint32_t tag;
    uint32_t ends;    /* STROM_FIRST, STROM_LAST */
    uint32_t left;    /* bytes of the message from here on */
    uint32_t len;     /* bytes of the input */
    uint32_t qpn;
    uint32_t space;   /* at the requester, in bytes */
    uint32_t longest; /* message */
    uint32_t there;   /* bytes that were read, or STROM_NOTHING */
    uint32_t missing; /* bytes of the message */
    uint32_t taken;
    uint32_t withdrawn;
    uint32_t begins;
    uint32_t status;
    uint32_t message;
    uint32_t rkey;
    uint64_t to;
    uint32_t forwarded;
    uint32_t put;
    uint32_t closed;
    uint32_t command;
    uint64_t command_va;
    uint32_t command_len;
    uint32_t writes;
    uint8_t input[STROM_DMA];
    uint8_t read[STROM_DMA];
    uint8_t putting[STROM_DMA];
    struct strom_write records[STROM_WRITES];
    uint8_t writing[STROM_WRITTEN];
};
_Static_assert(sizeof(struct strom_mailbox) == 21632, "as drawn");

static struct strom_mailbox strom = {.version = 1};

/* Defined by the kernel: one step, and a reset that forgets all state. */
static int32_t kernel_step(void);
static void kernel_reset(void);

#define STROM_EXPORT(name) __attribute__((export_name(name)))
STROM_EXPORT("mailbox") struct strom_mailbox *strom_mailbox(void) { return &strom; }
STROM_EXPORT("step") int32_t strom_step(void) { return kernel_step(); }
STROM_EXPORT("reset") void strom_reset(void) { kernel_reset(); }

static inline void strom_copy(uint8_t *to, const void *from, size_t len) { __builtin_memcpy(to, from, len); }

/* The input has been used. */
static inline void strom_take(void) { strom.taken = 1; }

/* Asks for bytes of memory: they are in strom.read at the next step. */
static inline void strom_read(uint64_t va, uint32_t len) {
    strom.command = 1, strom.command_va = va, strom.command_len = len;
}

/* The next bytes of the message come straight from memory. */
static inline void strom_read_to_wire(uint64_t va, uint32_t len) {
    strom.command = 2, strom.command_va = va, strom.command_len = len;
}

/* Answers the request, with `len` bytes that follow. Returns 0 if so many do not fit, and the answer says so. */
static inline int strom_answer(uint32_t status, uint32_t len) {
    int fits = len == 0 || (len <= strom.space && len <= strom.longest);
    strom.begins = 1, strom.status = status, strom.message = len, strom.missing = fits ? len : 0;
    return fits;
}

/* The same, for a message whose length strom_close() fixes. */
static inline void strom_open(uint32_t status) {
    strom.begins = 2, strom.status = status;
    strom.missing = strom.space < strom.longest ? strom.space : strom.longest;
}
static inline void strom_close(void) { strom.closed = 1, strom.missing = 0; }
static inline void strom_withdraw(void) { strom.withdrawn = 1, strom.missing = 0; }

/* A WRITE to the peer's memory beside answers. */
static inline void strom_send(uint64_t addr, uint32_t rkey, uint32_t len) {
    strom.begins = 3, strom.to = addr, strom.rkey = rkey, strom.message = len, strom.missing = len;
}

/* Adds bytes to the message. Returns 0 if this step cannot add more. */
static inline int strom_put(const void *bytes, uint32_t len) {
    if (len > STROM_DMA - strom.put) return 0;
    strom_copy(strom.putting + strom.put, bytes, len);
    strom.put += len;
    strom.missing -= len < strom.missing ? len : strom.missing;
    return 1;
}

/* The first bytes that were read become the message's next; they go before those that this step puts. */
static inline void strom_forward(uint32_t len) {
    strom.forwarded = len;
    strom.missing -= len < strom.missing ? len : strom.missing;
}

/* Writes to memory. Returns 0 if this step cannot write more. */
static inline int strom_write(uint64_t va, const void *bytes, uint32_t len) {
    uint32_t begin = 0;
    for (uint32_t at = 0; at < strom.writes; at++) begin += strom.records[at].len;
    if (strom.writes == STROM_WRITES || len > STROM_WRITTEN - begin) return 0;
    strom_copy(strom.writing + begin, bytes, len);
    strom.records[strom.writes++] = (struct strom_write){va, len, 0};
    return 1;
}

#endif
