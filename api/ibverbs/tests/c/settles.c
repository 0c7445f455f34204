/* The library's threads call none of the functions whose first bytes memory hooks overwrite, from the return of
   ibv_open_device on. A filter reports each such system call of this thread and of those that it starts. */
#define _GNU_SOURCE
#include "loopback.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define REPORT(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF)

enum { HELD = 64, HOLD_MS = 100 };

static int listener, opened, early, late;
static pid_t program;

static void let_go(uint64_t id) {
    struct seccomp_notif_resp answer = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Lets the program's own calls go at once. Those of the library's threads are held, as a busy machine would. */
static void *watch(void *unused) {
    (void)unused;
    struct { uint64_t id; long due; } held[HELD];
    int first = 0, count = 0;
    for (;;) {
        struct pollfd waited = {.fd = listener, .events = POLLIN};
        poll(&waited, 1, count ? 5 : 1000);
        if (waited.revents & POLLIN) {
            struct seccomp_notif asked;
            memset(&asked, 0, sizeof asked);
            if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) == 0) {
                if ((pid_t)asked.pid == program) {
                    let_go(asked.id);
                } else {
                    __atomic_add_fetch(__atomic_load_n(&opened, __ATOMIC_SEQ_CST) ? &late : &early, 1, __ATOMIC_SEQ_CST);
                    CHECK(count < HELD);
                    held[(first + count++) % HELD].id = asked.id;
                    held[(first + count - 1) % HELD].due = now_ms() + HOLD_MS;
                }
            }
        }
        while (count && held[first % HELD].due <= now_ms()) {
            if (__atomic_load_n(&opened, __ATOMIC_SEQ_CST))
                __atomic_add_fetch(&late, 1, __ATOMIC_SEQ_CST);
            let_go(held[first++ % HELD].id);
            count--;
        }
    }
    return NULL;
}

static void install(void) {
    struct sock_filter program_of[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REPORT(__NR_mmap), REPORT(__NR_munmap), REPORT(__NR_mremap), REPORT(__NR_madvise),
        REPORT(__NR_shmat), REPORT(__NR_shmdt), REPORT(__NR_brk),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program_of / sizeof *program_of, program_of};
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
    CHECK(listener >= 0);
}

static void *start(void *unused) {
    while (!__atomic_load_n(&listener, __ATOMIC_SEQ_CST))
        usleep(1000);
    return watch(unused);
}

int main(void) {
    program = (pid_t)syscall(SYS_gettid);
    pthread_t watcher;
    /* It was started before the filter, which it does not have. */
    CHECK(!pthread_create(&watcher, NULL, start, NULL));
    install();
    struct ibv_context *context = open_first();
    __atomic_store_n(&opened, 1, __ATOMIC_SEQ_CST);
    struct loopback one = loopback();
    for (int round = 0; round < 200; round++) {
        CHECK(!post_write(&one, 0, round, 0, 64) && wait_one(&one).status == IBV_WC_SUCCESS);
        if (round % 50 == 0)
            usleep(50000);
    }
    usleep(2 * HOLD_MS * 1000);
    if (late)
        printf("%d after the device was open, ", late);
    puts(early ? "seen" : "no thread allocated");
    fflush(stdout);
    CHECK(!ibv_close_device(context));
    _exit(0);
}
