/* Two processes with a device each: pages of one of them go away, lose a right or are truncated after they were
 * registered. The requester sees an error, and nobody dies. */
#define _GNU_SOURCE
#include "loopback.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, REGION = 16 * PAGE };
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

enum harm { UNHARMED, UNMAPPED, READ_ONLY, TRUNCATED };

struct trial {
    enum ibv_wr_opcode opcode;
    enum harm harm;
    /* The requester's pages are harmed, not the target's. */
    int local;
    /* Bytes at the start of the region that stay as they are; where the message's bytes begin, and how many. */
    size_t kept, from, length;
    enum ibv_wc_status status;
};

#define WRITE IBV_WR_RDMA_WRITE
#define READ IBV_WR_RDMA_READ
#define REMOTE IBV_WC_REM_ACCESS_ERR
#define LOCAL IBV_WC_LOC_PROT_ERR

static const struct trial trials[] = {
    {WRITE, UNMAPPED, 0, 0, 0, 64, REMOTE},
    {READ, UNMAPPED, 0, 0, 0, 64, REMOTE},
    {WRITE, UNMAPPED, 0, 8 * PAGE, 0, REGION, REMOTE},
    {READ, UNMAPPED, 0, 8 * PAGE, 0, REGION, REMOTE},
    {WRITE, UNMAPPED, 0, PAGE, PAGE - 3, 64, REMOTE},
    {READ, UNMAPPED, 0, PAGE, PAGE - 3, 64, REMOTE},
    {WRITE, READ_ONLY, 0, 0, 0, 64, REMOTE},
    {WRITE, READ_ONLY, 0, 8 * PAGE, 0, REGION, REMOTE},
    {READ, READ_ONLY, 0, 0, 0, REGION, IBV_WC_SUCCESS},
    {WRITE, TRUNCATED, 0, 0, 0, 64, REMOTE},
    {READ, TRUNCATED, 0, 0, 0, 64, REMOTE},
    {WRITE, TRUNCATED, 0, 8 * PAGE, 0, REGION, REMOTE},
    {READ, TRUNCATED, 0, 8 * PAGE, 0, REGION, REMOTE},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, UNMAPPED, 0, 0, 0, 8, REMOTE},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, READ_ONLY, 0, 0, 0, 8, REMOTE},
    {IBV_WR_ATOMIC_CMP_AND_SWP, TRUNCATED, 0, 0, 0, 8, REMOTE},
    {IBV_WR_SEND, UNMAPPED, 0, 0, 0, 64, IBV_WC_REM_OP_ERR},
    {IBV_WR_SEND, TRUNCATED, 0, 8 * PAGE, 0, REGION, IBV_WC_REM_OP_ERR},
    {WRITE, UNMAPPED, 1, 0, 0, 64, LOCAL},
    {WRITE, TRUNCATED, 1, 8 * PAGE, 0, REGION, LOCAL},
    {READ, UNMAPPED, 1, 0, 0, 64, LOCAL},
    {READ, READ_ONLY, 1, 8 * PAGE, 0, REGION, LOCAL},
    {IBV_WR_SEND, UNMAPPED, 1, 0, 0, 64, LOCAL},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, UNMAPPED, 1, 0, 0, 8, LOCAL},
    {WRITE, UNHARMED, 0, 0, 0, REGION, IBV_WC_SUCCESS},
    {READ, UNHARMED, 0, 0, 0, REGION, IBV_WC_SUCCESS},
};

enum { TRIALS = sizeof trials / sizeof trials[0] };

/* What a process has while it lives, and the socket to the other one. */
struct process {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    int peer;
};

/* What a trial has in one process. */
struct side {
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *start;
    int file;
};

/* What the processes say to each other. */
struct queue_info {
    uint32_t qpn, rkey;
    uint64_t address;
};

static struct process opened(int peer) {
    struct process own = {.context = open_first(), .peer = peer};
    CHECK((own.pd = ibv_alloc_pd(own.context)));
    CHECK((own.cq = ibv_create_cq(own.context, DEPTH, NULL, NULL, 0)));
    return own;
}

static struct ibv_wc next(struct process *own) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(own->cq, 1, &wc)) == 0) {
    }
    CHECK(count == 1);
    return wc;
}

static struct queue_info exchange(struct process *own, struct queue_info own_info) {
    struct queue_info peer_info;
    CHECK(write(own->peer, &own_info, sizeof own_info) == sizeof own_info);
    CHECK(read(own->peer, &peer_info, sizeof peer_info) == sizeof peer_info);
    return peer_info;
}

/* Memory and a queue pair that is connected with the other process. */
static struct side side(struct process *own, struct queue_info *peer) {
    struct side one = {.file = memfd_create("region", 0)};
    CHECK(one.file >= 0 && !ftruncate(one.file, REGION));
    one.start = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, one.file, 0);
    CHECK(one.start != MAP_FAILED);
    CHECK((one.mr = ibv_reg_mr(own->pd, one.start, REGION, RIGHTS)));
    struct ibv_qp_init_attr init = {.send_cq = own->cq, .recv_cq = own->cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    CHECK((one.qp = ibv_create_qp(own->pd, &init)));
    *peer = exchange(own, (struct queue_info){one.qp->qp_num, one.mr->rkey, (uintptr_t)one.start});
    move(own->context, one.qp, peer->qpn);
    return one;
}

/* No socket, file or mapping is made between harm and end, so nothing else comes to lie there. */
static void harm(struct side *one, const struct trial *trial) {
    char *from = one->start + trial->kept;
    size_t length = REGION - trial->kept;
    if (trial->harm == UNMAPPED) CHECK(!munmap(from, length));
    if (trial->harm == READ_ONLY) CHECK(!mprotect(from, length, PROT_READ));
    if (trial->harm == TRUNCATED) CHECK(!ftruncate(one->file, trial->kept));
}

static void end_side(struct side *one) {
    CHECK(!ibv_destroy_qp(one->qp) && !ibv_dereg_mr(one->mr));
    CHECK(!munmap(one->start, REGION) && !close(one->file));
}

static void request(struct process *own, const struct trial *trial) {
    struct queue_info peer;
    struct side one = side(own, &peer);
    if (trial->local) harm(&one, trial);
    /* The target is in RTS, and its pages are harmed. */
    exchange(own, (struct queue_info){0});
    struct ibv_sge sge = {.addr = (uintptr_t)one.start + trial->from, .length = trial->length, .lkey = one.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = trial->opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (trial->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || trial->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = peer.address + trial->from;
        wr.wr.atomic.rkey = peer.rkey;
    } else {
        wr.wr.rdma.remote_addr = peer.address + trial->from;
        wr.wr.rdma.rkey = peer.rkey;
    }
    CHECK(!ibv_post_send(one.qp, &wr, &bad));
    enum ibv_wc_status status = next(own).status;
    if (status != trial->status) fprintf(stderr, "trial %d: %s\n", (int)(trial - trials), ibv_wc_status_str(status));
    CHECK(status == trial->status);
    exchange(own, (struct queue_info){0});
    end_side(&one);
}

static void serve(struct process *own, const struct trial *trial) {
    struct queue_info peer;
    struct side one = side(own, &peer);
    int receives = trial->opcode == IBV_WR_SEND && !trial->local;
    if (receives) {
        struct ibv_sge sge = {.addr = (uintptr_t)one.start, .length = REGION, .lkey = one.mr->lkey};
        struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
        CHECK(!ibv_post_recv(one.qp, &wr, &bad));
    }
    if (!trial->local) harm(&one, trial);
    exchange(own, (struct queue_info){0});
    if (receives) CHECK(next(own).status == LOCAL);
    exchange(own, (struct queue_info){0});
    end_side(&one);
}

/* The program's own fault is expected by now. */
static volatile sig_atomic_t own_fault;

static void leave(int signal) {
    (void)signal;
    _exit(own_fault ? 0 : 7);
}

static void (*handler_now(int number))(int) {
    struct sigaction now;
    CHECK(!sigaction(number, NULL, &now));
    return now.sa_handler;
}

static void handle(void) {
    CHECK(signal(SIGSEGV, leave) != SIG_ERR && signal(SIGBUS, leave) != SIG_ERR);
}

/* What a process does whose handlers are installed before or after the library's. */
static void run(int peer, int before, void (*part)(struct process *, const struct trial *)) {
    if (before) handle();
    /* A thread of the library that took over this mask would die by the first fault. */
    sigset_t all, own_mask;
    CHECK(!sigfillset(&all) && !sigprocmask(SIG_BLOCK, &all, &own_mask));
    struct process own = opened(peer);
    CHECK(!sigprocmask(SIG_SETMASK, &own_mask, NULL));
    if (!before) {
        handle();
        /* No region is registered: the library's thread steps in front. */
        while (handler_now(SIGSEGV) == leave || handler_now(SIGBUS) == leave) sched_yield();
    }
    for (const struct trial *trial = trials; trial < trials + TRIALS; trial++) part(&own, trial);
    CHECK(!ibv_destroy_cq(own.cq) && !ibv_dealloc_pd(own.pd) && !ibv_close_device(own.context));
}

int main(int count, char **arguments) {
    (void)arguments;
    int ends[2], status;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    pid_t target = fork();
    CHECK(target >= 0);
    int before = count > 1;
    CHECK(!close(ends[target == 0 ? 0 : 1]));
    if (target == 0) {
        run(ends[1], before, serve);
        own_fault = 1;
        *(volatile char *)(uintptr_t)16 = 1;
        return 1;
    }
    run(ends[0], before, request);
    CHECK(waitpid(target, &status, 0) == target);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("%d trials, and the target's own fault was its handler's\n", TRIALS);
    return 0;
}
