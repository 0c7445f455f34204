/* Pages that go away, lose a right or were never there: errors of the work request, and nobody dies. */
#define _GNU_SOURCE
#include "loopback.h"
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static void *pages(int rights) {
    void *start = mmap(NULL, 2 * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return start;
}

static long resident(void) {
    long whole, there;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &whole, &there) == 2);
    fclose(file);
    return there;
}

static void holes(struct loopback *one) {
    char *start = pages(PROT_READ);
    CHECK(!ibv_reg_mr(one->pd, start, 2 * PAGE, RIGHTS) && errno == EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(one->pd, start, 2 * PAGE, IBV_ACCESS_REMOTE_READ);
    CHECK(mr && !ibv_dereg_mr(mr));
    CHECK(!ibv_reg_mr(one->pd, start, 2 * PAGE, IBV_ACCESS_MW_BIND) && errno == EFAULT);
    /* As the kernel pins: what is pinned for writing must be writable, and what is not, readable. */
    CHECK(!mprotect(start, 2 * PAGE, PROT_WRITE));
    CHECK(!ibv_reg_mr(one->pd, start, 2 * PAGE, IBV_ACCESS_REMOTE_READ) && errno == EFAULT);
    CHECK((mr = ibv_reg_mr(one->pd, start, 2 * PAGE, RIGHTS)) && !ibv_dereg_mr(mr));
    CHECK(!munmap(start + PAGE, PAGE));
    CHECK(!ibv_reg_mr(one->pd, start, 2 * PAGE, IBV_ACCESS_REMOTE_READ) && errno == EFAULT);
    CHECK(!munmap(start, PAGE));

    size_t large = 1ul << 30;
    void *gib = mmap(NULL, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(gib != MAP_FAILED);
    long before = resident();
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    CHECK((mr = ibv_reg_mr(one->pd, gib, large, RIGHTS)));
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK(resident() - before < 64);
    printf("1 GiB is registered in %ld ns\n", (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec);
    fflush(stdout);
    CHECK(!ibv_dereg_mr(mr) && !munmap(gib, large));
}

/* Sends one request by the first queue pair, and returns the status of its completion. */
static enum ibv_wc_status ask(enum ibv_wr_opcode opcode, void *local, uint32_t lkey, void *remote, uint32_t rkey, uint32_t len) {
    struct loopback one = loopback();
    struct ibv_sge sge = {.addr = (uintptr_t)local, .length = len, .lkey = lkey ? lkey : one.mr->lkey};
    struct ibv_mr *mr = NULL;
    if (lkey) {
        CHECK((mr = ibv_reg_mr(one.pd, local, PAGE, RIGHTS)));
        sge.lkey = mr->lkey;
        CHECK(!munmap(local, PAGE));
        remote = one.memory;
        rkey = one.mr->rkey;
    } else {
        sge.addr = (uintptr_t)one.memory;
        CHECK((mr = ibv_reg_mr(one.pd, remote, PAGE, RIGHTS)));
        CHECK(!mprotect(remote, PAGE, rkey));
        rkey = mr->rkey;
    }
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)remote;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)remote;
        wr.wr.rdma.rkey = rkey;
    }
    CHECK(!ibv_post_send(one.qp[0], &wr, &bad));
    struct ibv_wc wc = wait_one(&one);
    CHECK(!ibv_dereg_mr(mr));
    end(&one);
    return wc.status;
}

/* The target's page has these rights by now. */
static enum ibv_wc_status remote(enum ibv_wr_opcode opcode, int rights, uint32_t len) {
    return ask(opcode, NULL, 0, pages(PROT_READ | PROT_WRITE), (uint32_t)rights, len);
}

/* The page of the program's own is unmapped by now. */
static enum ibv_wc_status local(enum ibv_wr_opcode opcode) {
    return ask(opcode, pages(PROT_READ | PROT_WRITE), 1, NULL, 0, 64);
}

static void errors(void) {
    for (uint32_t len = 8; len <= PAGE; len *= 8) {
        CHECK(remote(IBV_WR_RDMA_WRITE, PROT_NONE, len) == IBV_WC_REM_ACCESS_ERR);
        CHECK(remote(IBV_WR_RDMA_READ, PROT_NONE, len) == IBV_WC_REM_ACCESS_ERR);
    }
    CHECK(remote(IBV_WR_RDMA_WRITE, PROT_READ, 64) == IBV_WC_REM_ACCESS_ERR);
    CHECK(remote(IBV_WR_RDMA_READ, PROT_READ, 64) == IBV_WC_SUCCESS);
    CHECK(remote(IBV_WR_ATOMIC_FETCH_AND_ADD, PROT_READ, 8) == IBV_WC_REM_ACCESS_ERR);
    CHECK(local(IBV_WR_RDMA_WRITE) == IBV_WC_LOC_PROT_ERR);
    CHECK(local(IBV_WR_RDMA_READ) == IBV_WC_LOC_PROT_ERR);
}

static void truncated(void) {
    struct loopback one = loopback();
    int file = memfd_create("truncated", 0);
    CHECK(file >= 0 && !ftruncate(file, PAGE));
    char *start = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct ibv_mr *mr = ibv_reg_mr(one.pd, start, PAGE, RIGHTS);
    CHECK(mr && !ftruncate(file, 0));
    struct ibv_sge sge = {.addr = (uintptr_t)one.memory, .length = 64, .lkey = one.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)start;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(!ibv_post_send(one.qp[0], &wr, &bad));
    CHECK(wait_one(&one).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_dereg_mr(mr));
    end(&one);
}

static void implicit(void) {
    struct loopback one = loopback();
    struct ibv_mr *mr = ibv_reg_mr(one.pd, NULL, SIZE_MAX, RIGHTS | IBV_ACCESS_ON_DEMAND);
    CHECK(mr);
    char *start = pages(PROT_READ | PROT_WRITE);
    strcpy(start, "on demand");
    struct ibv_sge sge = {.addr = (uintptr_t)start, .length = 10, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)start + PAGE;
    wr.wr.rdma.rkey = mr->rkey;
    CHECK(!ibv_post_send(one.qp[0], &wr, &bad));
    CHECK(wait_one(&one).status == IBV_WC_SUCCESS && !strcmp(start + PAGE, "on demand"));
    wr.wr.rdma.remote_addr = 64;
    CHECK(!ibv_post_send(one.qp[0], &wr, &bad));
    CHECK(wait_one(&one).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!ibv_dereg_mr(mr));
    end(&one);
}

static void leave(int signal) {
    (void)signal;
    CHECK(write(STDOUT_FILENO, "handled\n", 8) == 8);
    _exit(0);
}

int main(int count, char **arguments) {
    (void)arguments;
    /* With an argument the program's handler is there before the library's. */
    if (count > 1) signal(SIGSEGV, leave);
    struct loopback one = loopback();
    holes(&one);
    errors();
    truncated();
    implicit();
    /* After the library's: it steps in front again when a region is registered. */
    signal(SIGSEGV, leave);
    errors();
    end(&one);
    /* The program's own fault is its handler's. */
    *(volatile char *)(uintptr_t)16 = 1;
    return 1;
}
