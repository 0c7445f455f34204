/* Four threads share one queue pair and one completion queue, and lose nothing. The argument: requests of each. */
#include "loopback.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4 };

static int each = 5000;

static struct loopback one;
static atomic_int done, posted[THREADS], seen[THREADS];

static void *work(void *argument) {
    uint64_t own = (uintptr_t)argument;
    for (int left = each; left > 0 || atomic_load(&done) < THREADS * each;) {
        if (left > 0) {
            int refused = post_write(&one, 0, own, 8 * own, 1024 + 8 * own);
            CHECK(refused == 0 || refused == ENOMEM);
            if (!refused) {
                left--;
                atomic_fetch_add(&posted[own], 1);
            }
        }
        struct ibv_wc wc[8];
        int count = ibv_poll_cq(one.cq, 8, wc);
        CHECK(count >= 0);
        for (int at = 0; at < count; at++) {
            CHECK(wc[at].status == IBV_WC_SUCCESS && wc[at].wr_id < THREADS && wc[at].qp_num == one.qp[0]->qp_num);
            atomic_fetch_add(&seen[wc[at].wr_id], 1);
            atomic_fetch_add(&done, 1);
        }
        if (count == 0) sched_yield();
    }
    return NULL;
}

int main(int count, char **words) {
    if (count > 1) each = atoi(words[1]);
    one = loopback();
    pthread_t threads[THREADS];
    for (uintptr_t at = 0; at < THREADS; at++) {
        memset(one.memory + 8 * at, (int)at + 1, 8);
        CHECK(!pthread_create(&threads[at], NULL, work, (void *)at));
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(!pthread_join(threads[at], NULL));
        CHECK(posted[at] == each);
    }
    for (int at = 0; at < THREADS; at++) {
        CHECK(seen[at] == each);
        CHECK(!memcmp(one.memory + 8 * at, one.memory + 1024 + 8 * at, 8));
    }
    end(&one);
    puts("nothing lost");
}
