/* Two queue pairs of one process that are connected with each other by the port, for the programs of this folder. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include "check.h"
#include <infiniband/verbs.h>
#include <stdint.h>

struct loopback {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
    struct ibv_mr *mr;
    char *memory;
};

enum { MEMORY = 1 << 16, DEPTH = 512 };

static inline void move(struct ibv_context *context, struct ibv_qp *qp, uint32_t peer) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 1;
    CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    CHECK(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline struct ibv_context *open_first(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}

static inline struct loopback loopback(void) {
    struct loopback one = {.context = open_first()};
    CHECK((one.pd = ibv_alloc_pd(one.context)));
    CHECK((one.channel = ibv_create_comp_channel(one.context)));
    CHECK((one.cq = ibv_create_cq(one.context, 4 * DEPTH, &one, one.channel, 0)));
    for (int at = 0; at < 2; at++) {
        struct ibv_qp_init_attr init = {.send_cq = one.cq, .recv_cq = one.cq, .qp_type = IBV_QPT_RC};
        init.cap = (struct ibv_qp_cap){.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1};
        CHECK((one.qp[at] = ibv_create_qp(one.pd, &init)));
    }
    move(one.context, one.qp[0], one.qp[1]->qp_num);
    move(one.context, one.qp[1], one.qp[0]->qp_num);
    CHECK((one.memory = calloc(1, MEMORY)));
    CHECK((one.mr = ibv_reg_mr(one.pd, one.memory, MEMORY,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
    return one;
}

/* Posts an RDMA WRITE of 8 bytes from `from` to `to` of the memory. Returns the errno. */
static inline int post_write(struct loopback *one, int which, uint64_t id, size_t from, size_t to) {
    struct ibv_sge sge = {.addr = (uintptr_t)one->memory + from, .length = 8, .lkey = one->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)one->memory + to;
    wr.wr.rdma.rkey = one->mr->rkey;
    return ibv_post_send(one->qp[which], &wr, &bad);
}

static inline struct ibv_wc wait_one(struct loopback *one) {
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(one->cq, 1, &wc)) == 0) {
    }
    CHECK(count == 1);
    return wc;
}

static inline void end(struct loopback *one) {
    CHECK(ibv_dealloc_pd(one->pd) == EBUSY);
    CHECK(ibv_destroy_cq(one->cq) == EBUSY);
    CHECK(ibv_destroy_comp_channel(one->channel) == EBUSY);
    CHECK(!ibv_destroy_qp(one->qp[0]) && !ibv_destroy_qp(one->qp[1]));
    CHECK(ibv_destroy_qp(one->qp[0]) == EINVAL);
    CHECK(!ibv_dereg_mr(one->mr) && !ibv_destroy_cq(one->cq) && !ibv_destroy_comp_channel(one->channel));
    CHECK(!ibv_dealloc_pd(one->pd) && !ibv_close_device(one->context));
    free(one->memory);
}

#endif
