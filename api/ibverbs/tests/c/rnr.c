/* A queue pair whose peer has no receive posted, and one whose peer has: prints the number of the first. */
#include "loopback.h"
#include <stdio.h>
#include <unistd.h>

static void post_receive(struct loopback *one, int which) {
    struct ibv_sge sge = {.addr = (uintptr_t)one->memory, .length = 64, .lkey = one->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(!ibv_post_recv(one->qp[which], &wr, &bad));
}

static void post_send(struct loopback *one, int which) {
    struct ibv_sge sge = {.addr = (uintptr_t)one->memory + 64, .length = 64, .lkey = one->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK(!ibv_post_send(one->qp[which], &wr, &bad));
}

static void both_end(struct loopback *one) {
    for (int at = 0; at < 2; at++)
        CHECK(wait_one(one).status == IBV_WC_SUCCESS);
}

int main(void) {
    struct loopback one = loopback();
    struct ibv_wc wc;
    post_send(&one, 0);
    for (int at = 0; at < 20; at++) {
        CHECK(!ibv_poll_cq(one.cq, 1, &wc));
        usleep(1000);
    }
    post_receive(&one, 1);
    both_end(&one);
    post_receive(&one, 0);
    post_send(&one, 1);
    both_end(&one);
    printf("%#x\n", one.qp[0]->qp_num);
    fflush(stdout);
    end(&one);
    return 0;
}
