/* A child opens a device of its own and ends what it inherited; the parent's traffic goes on unharmed. */
#include "loopback.h"
#include <sys/wait.h>
#include <unistd.h>

static void writes(struct loopback *one, int count) {
    for (int at = 0; at < count; at++) {
        memset(one->memory, at + 1, 8);
        CHECK(!post_write(one, at % 2, at, 0, 512));
        struct ibv_wc wc = wait_one(one);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)at);
        CHECK(one->memory[512] == (char)(at + 1));
    }
}

static void child(struct loopback *inherited) {
    CHECK(post_write(inherited, 0, 1, 0, 512) == EIO);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(inherited->cq, 1, &wc) < 0);
    CHECK(!ibv_alloc_pd(inherited->context) && errno == EIO);
    struct loopback own = loopback();
    union ibv_gid theirs, ours;
    CHECK(!ibv_query_gid(inherited->context, 1, 0, &theirs) && !ibv_query_gid(own.context, 1, 0, &ours));
    /* A program has an address alone, or its queue pairs have numbers of their own range. */
    CHECK(memcmp(&theirs, &ours, sizeof ours) || inherited->qp[0]->qp_num >> 17 != own.qp[0]->qp_num >> 17);
    /* Also now that there is a device, what was inherited is the parent's. */
    CHECK(post_write(inherited, 0, 1, 0, 512) == EIO);
    writes(&own, 100);
    CHECK(!ibv_destroy_qp(inherited->qp[0]) && !ibv_destroy_qp(inherited->qp[1]));
    CHECK(!ibv_dereg_mr(inherited->mr) && !ibv_destroy_cq(inherited->cq) && !ibv_dealloc_pd(inherited->pd));
    CHECK(!ibv_close_device(inherited->context));
    writes(&own, 100);
    end(&own);
}

int main(void) {
    CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
    struct loopback one = loopback();
    writes(&one, 100);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child(&one);
        exit(0);
    }
    int status;
    do writes(&one, 10);
    while (waitpid(pid, &status, WNOHANG) == 0);
    CHECK(status == 0);
    writes(&one, 100);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    writes(&one, 100);
    end(&one);
    puts("unharmed");
}
