/* Clients connect and disconnect, ten times each, and are killed with the tenth connection. The server sees
   each end, and prints how long the end of the killed took. The argument is the number of connections. */
#include "sides.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { EACH = 10, MOST = 1000 };

/* When each client was killed, in nanoseconds; both processes have it. */
static int64_t *killed;

static int64_t now(void) {
    struct timespec time;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int earlier(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void client(uint16_t port, int number) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    for (int at = 1; at <= EACH; at++) {
        struct rdma_cm_id *id = routed(channel, RDMA_PS_TCP, port);
        make_qp(id);
        CHECK(!rdma_connect(id, NULL));
        passes(channel, RDMA_CM_EVENT_ESTABLISHED);
        if (at == EACH) {
            killed[number] = now();
            raise(SIGKILL);
        }
        CHECK(!rdma_disconnect(id));
        passes(channel, RDMA_CM_EVENT_DISCONNECTED);
        rdma_destroy_qp(id);
        CHECK(!rdma_destroy_id(id));
    }
}

/* Descriptors of this process. */
static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder);
    while (readdir(folder)) count++;
    CHECK(!closedir(folder));
    return count;
}

/* One process after the other: none has the device of another. */
static void clients(int count, int ports) {
    uint16_t port;
    CHECK(read(ports, &port, sizeof port) == sizeof port);
    for (int at = 0; at < count; at++) {
        int status;
        pid_t one = fork();
        CHECK(one >= 0);
        if (one == 0) client(port, at);
        CHECK(waitpid(one, &status, 0) == one);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
}

int main(int count, char **words) {
    CHECK(count == 2);
    int total = atoi(words[1]), pipes[2], begun = 0, ended = 0, before = 0, deaths = 0, status;
    CHECK(total <= EACH * MOST && !pipe(pipes));
    killed = mmap(NULL, MOST * sizeof *killed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(killed != MAP_FAILED);
    static int64_t took[MOST];
    pid_t driver = fork();
    CHECK(driver >= 0);
    if (driver == 0) {
        clients(total / EACH, pipes[0]);
        return 0;
    }
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_id *listens = listener(channel, RDMA_PS_TCP);
    uint16_t port = ntohs(rdma_get_src_port(listens));
    CHECK(write(pipes[1], &port, sizeof port) == sizeof port);
    while (ended < total) {
        struct rdma_cm_event *event;
        CHECK(!rdma_get_cm_event(channel, &event));
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        CHECK(!rdma_ack_cm_event(event));
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            make_qp(id);
            CHECK(!rdma_accept(id, NULL));
            /* The clients come one after the other, and the last connection of each is killed. */
            id->context = (void *)(intptr_t)begun++;
        } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
            int number = (intptr_t)id->context;
            if (number % EACH == EACH - 1) took[deaths++] = now() - killed[number / EACH];
            CHECK(!rdma_disconnect(id));
            rdma_destroy_qp(id);
            CHECK(!rdma_destroy_id(id));
            if (++ended == EACH) before = descriptors();
        } else {
            CHECK(type == RDMA_CM_EVENT_ESTABLISHED);
        }
    }
    CHECK(waitpid(driver, &status, 0) == driver && status == 0 && begun == total);
    /* Links to the dead close when the NIC looks at them. */
    while (descriptors() > before) sched_yield();
    CHECK(!rdma_destroy_id(listens));
    rdma_destroy_event_channel(channel);
    CHECK(deaths == total / EACH);
    qsort(took, deaths, sizeof *took, earlier);
    printf("%d ended; of the killed, half within %lld us and all within %lld us\n", ended,
           (long long)took[deaths / 2] / 1000, (long long)took[deaths - 1] / 1000);
}
