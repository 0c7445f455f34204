/* Bad input is refused with the errno of rdma-core's providers, and harms nobody. */
#include "loopback.h"

static int modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask) { return ibv_modify_qp(qp, &attr, mask); }

static void handles(struct loopback *one) {
    CHECK(ibv_dealloc_pd(NULL) == EINVAL && ibv_destroy_qp(NULL) == EINVAL && ibv_destroy_cq(NULL) == EINVAL);
    CHECK(ibv_dereg_mr(NULL) == EINVAL && ibv_destroy_ah(NULL) == EINVAL && ibv_destroy_srq(NULL) == EINVAL);
    CHECK(ibv_destroy_qp((struct ibv_qp *)one->cq) == EINVAL);
    CHECK(!ibv_open_device(NULL) && ibv_close_device(NULL) == -1 && !ibv_alloc_pd(NULL));
    struct ibv_pd *pd = ibv_alloc_pd(one->context);
    CHECK(!ibv_dealloc_pd(pd) && ibv_dealloc_pd(pd) == EINVAL);
    struct ibv_wc wc;
    struct ibv_recv_wr receive = {0}, *bad = NULL;
    CHECK(one->context->ops.poll_cq(NULL, 1, &wc) == -EINVAL);
    CHECK(one->context->ops.post_recv(NULL, &receive, &bad) == EINVAL && bad == &receive);
}

static void queries(struct loopback *one) {
    union ibv_gid gid;
    uint16_t pkey;
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(one->context, 1, &port));
    CHECK(ibv_query_gid(one->context, 1, port.gid_tbl_len, &gid) == -1 && ibv_query_gid(one->context, 2, 0, &gid) == -1);
    CHECK(ibv_query_gid(one->context, 1, -1, &gid) == -1 && ibv_query_pkey(one->context, 1, 1, &pkey) == -1);
    CHECK(ibv_query_port(one->context, 0, &port) == EINVAL && ibv_query_port(one->context, 2, &port) == EINVAL);
}

static void sizes(struct loopback *one) {
    CHECK(!ibv_create_cq(one->context, 0, NULL, NULL, 0) && errno == EINVAL);
    CHECK(!ibv_create_cq(one->context, 1 << 24, NULL, NULL, 0) && errno == EINVAL);
    CHECK(!ibv_create_cq(one->context, 1, NULL, NULL, one->context->num_comp_vectors) && errno == EINVAL);
    struct ibv_qp_init_attr good = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_RC}, bad;
    good.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
    bad = good, bad.cap.max_send_wr = 1 << 24;
    CHECK(!ibv_create_qp(one->pd, &bad) && errno == EINVAL);
    bad = good, bad.cap.max_recv_sge = 1000;
    CHECK(!ibv_create_qp(one->pd, &bad) && errno == EINVAL);
    bad = good, bad.cap.max_inline_data = 1 << 20;
    CHECK(!ibv_create_qp(one->pd, &bad) && errno == EINVAL);
    bad = good, bad.send_cq = NULL;
    CHECK(!ibv_create_qp(one->pd, &bad) && errno == EINVAL);
    bad = good, bad.qp_type = IBV_QPT_RAW_PACKET;
    CHECK(!ibv_create_qp(one->pd, &bad) && errno == EOPNOTSUPP);
    bad = good, bad.qp_type = 77;
    CHECK(!ibv_create_qp(one->pd, &bad) && errno == EINVAL);
    struct ibv_srq_init_attr none = {0};
    CHECK(!ibv_create_srq(one->pd, &none) && errno == EINVAL);
}

static void memory(struct loopback *one) {
    int remote = IBV_ACCESS_REMOTE_WRITE;
    CHECK(!ibv_reg_mr(one->pd, one->memory, 64, remote) && errno == EINVAL);
    /* Hardware without FLUSH refuses it for a region; see `flush_bits` for a queue pair. */
    CHECK(!ibv_reg_mr(one->pd, one->memory, 64, 0x100) && errno == EOPNOTSUPP);
    struct ibv_mr *empty = ibv_reg_mr(one->pd, one->memory, 0, IBV_ACCESS_LOCAL_WRITE);
    CHECK(empty && empty->length == 0 && !ibv_dereg_mr(empty));
    CHECK(!ibv_reg_mr(one->pd, (void *)4096, 64, 0) && errno == EFAULT);
    CHECK(!ibv_reg_mr(NULL, one->memory, 64, 0) && errno == EINVAL);
    struct ibv_mr *relaxed = ibv_reg_mr(one->pd, one->memory, 64, IBV_ACCESS_RELAXED_ORDERING);
    CHECK(relaxed && !ibv_dereg_mr(relaxed) && ibv_dereg_mr(relaxed) == EINVAL);
}

/* Programs try what a device has by bits that it may not know. */
static void unknown_bits(struct loopback *one) {
    struct ibv_parent_domain_init_attr parent = {.pd = one->pd, .comp_mask = 1 << 20};
    CHECK(!ibv_alloc_parent_domain(one->context, &parent) && errno == EOPNOTSUPP);
    struct ibv_td_init_attr thread = {.comp_mask = 1 << 20};
    CHECK(!ibv_alloc_td(one->context, &thread) && errno == EOPNOTSUPP);
    struct ibv_alloc_dm_attr device = {.length = 64, .comp_mask = 1 << 20};
    CHECK(!ibv_alloc_dm(one->context, &device) && errno == EOPNOTSUPP);
    struct ibv_xrcd_init_attr xrcd = {.fd = -1, .comp_mask = 1 << 20};
    CHECK(!ibv_open_xrcd(one->context, &xrcd) && errno == EOPNOTSUPP);
    struct ibv_qp_open_attr open = {.comp_mask = 1 << 20};
    CHECK(!ibv_open_qp(one->context, &open) && errno == EOPNOTSUPP);
    struct ibv_cq_init_attr_ex cq = {.cqe = 1, .comp_mask = 1 << 20};
    CHECK(!ibv_create_cq_ex(one->context, &cq) && errno == EOPNOTSUPP);
    struct ibv_srq_init_attr_ex srq = {.attr = {1, 1, 0}, .pd = one->pd, .comp_mask = IBV_SRQ_INIT_ATTR_PD | 1 << 20};
    CHECK(!ibv_create_srq_ex(one->context, &srq) && errno == EOPNOTSUPP);
    struct ibv_qp_init_attr_ex qp = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_RC, .pd = one->pd};
    qp.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
    qp.comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 20;
    CHECK(!ibv_create_qp_ex(one->context, &qp) && errno == EOPNOTSUPP);
    struct ibv_qp_rate_limit_attr rate = {.comp_mask = 1 << 20};
    CHECK(ibv_modify_qp_rate_limit(one->qp[0], &rate) == EOPNOTSUPP);
    struct ibv_values_ex values = {.comp_mask = 1 << 20};
    CHECK(ibv_query_rt_values_ex(one->context, &values) == EOPNOTSUPP);
}

/* A queue pair takes the FLUSH bits of its access flags, which mean nothing on a device without FLUSH. */
static void flush_bits(struct loopback *one) {
    struct ibv_qp_init_attr init = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
    struct ibv_qp *qp = ibv_create_qp(one->pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 0x300 | IBV_ACCESS_REMOTE_READ};
    CHECK(qp && !modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    CHECK(!ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init) && attr.qp_access_flags == IBV_ACCESS_REMOTE_READ);
    CHECK(!ibv_destroy_qp(qp));
}

/* A send queue of `wanted` requests, whose peer answers none: so many are taken, and not one more. */
static void full_queue(struct loopback *one, uint32_t wanted) {
    struct ibv_qp *qp[2];
    struct ibv_qp_init_attr init = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_RC};
    for (int at = 0; at < 2; at++) {
        init.cap = (struct ibv_qp_cap){wanted, wanted, 1, 1, 0};
        CHECK((qp[at] = ibv_create_qp(one->pd, &init)) && init.cap.max_send_wr == wanted);
    }
    move(one->context, qp[0], qp[1]->qp_num);
    struct ibv_qp_attr attr;
    CHECK(!ibv_query_qp(qp[0], &attr, IBV_QP_CAP, &init) && attr.cap.max_send_wr == wanted);
    struct ibv_sge sge = {.addr = (uintptr_t)one->memory, .length = 8, .lkey = one->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    for (uint32_t taken = 0; taken < wanted; taken++)
        CHECK(!ibv_post_send(qp[0], &wr, &bad));
    CHECK(ibv_post_send(qp[0], &wr, &bad) == ENOMEM && bad == &wr);
    CHECK(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
}

static void states(struct loopback *one) {
    struct ibv_qp_init_attr init = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_UD};
    init.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
    struct ibv_qp *qp = ibv_create_qp(one->pd, &init);
    struct ibv_sge sge = {.addr = (uintptr_t)one->memory, .length = 64, .lkey = one->mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad = NULL;
    CHECK(qp && ibv_post_recv(qp, &receive, &bad_receive) == EINVAL && bad_receive == &receive);
    CHECK(ibv_post_send(qp, &send, &bad) == EINVAL && bad == &send);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    CHECK(modify(qp, attr, IBV_QP_STATE) == EINVAL);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 2, .qkey = 1};
    int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    CHECK(modify(qp, attr, to_init) == EINVAL && qp->state == IBV_QPS_RESET);
    attr.port_num = 1;
    CHECK(!modify(qp, attr, to_init) && qp->state == IBV_QPS_INIT);
    CHECK(!ibv_post_recv(qp, &receive, &bad_receive) && ibv_post_send(qp, &send, &bad) == EINVAL);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!modify(qp, attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!modify(qp, attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    /* A datagram without an address handle, and one that is no datagram. */
    CHECK(ibv_post_send(qp, &send, &bad) == EINVAL && bad == &send);
    send.opcode = IBV_WR_RDMA_WRITE;
    CHECK(ibv_post_send(qp, &send, &bad) == EINVAL);
    struct ibv_ah_attr nowhere = {.port_num = 1, .is_global = 1, .grh.sgid_index = 255};
    CHECK(!ibv_create_ah(one->pd, &nowhere) && errno == EINVAL);
    CHECK(!ibv_destroy_qp(qp));
}

static void lists(struct loopback *one) {
    struct ibv_sge sges[2] = {{.addr = (uintptr_t)one->memory, .length = 8, .lkey = one->mr->lkey}};
    sges[1] = sges[0];
    struct ibv_send_wr wrs[3], *bad = NULL;
    memset(wrs, 0, sizeof wrs);
    for (int at = 0; at < 3; at++) {
        wrs[at] = (struct ibv_send_wr){.wr_id = 10 + at, .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        wrs[at].send_flags = IBV_SEND_SIGNALED;
        wrs[at].wr.rdma.remote_addr = (uintptr_t)one->memory + 64;
        wrs[at].wr.rdma.rkey = one->mr->rkey;
        wrs[at].next = at < 2 ? &wrs[at + 1] : NULL;
    }
    /* The first that is not taken is told; the one before it is done. */
    wrs[1].num_sge = 2;
    CHECK(ibv_post_send(one->qp[0], wrs, &bad) == EINVAL && bad == &wrs[1]);
    CHECK(wait_one(one).wr_id == 10);
    /* More inline data than there is space for. */
    wrs[1].num_sge = 1, wrs[1].send_flags |= IBV_SEND_INLINE, sges[0].length = 65;
    CHECK(ibv_post_send(one->qp[0], &wrs[1], &bad) == EINVAL && bad == &wrs[1]);
    sges[0].length = 8;
    wrs[1].send_flags = 0, wrs[1].opcode = IBV_WR_TSO;
    CHECK(ibv_post_send(one->qp[0], &wrs[1], &bad) == EOPNOTSUPP);
    wrs[1].opcode = 200;
    CHECK(ibv_post_send(one->qp[0], &wrs[1], &bad) == EINVAL);
    wrs[1].opcode = IBV_WR_RDMA_WRITE, wrs[1].sg_list = NULL;
    CHECK(ibv_post_send(one->qp[0], &wrs[1], &bad) == EINVAL);
    wrs[1].sg_list = sges, wrs[1].num_sge = -1;
    CHECK(ibv_post_send(one->qp[0], &wrs[1], &bad) == EINVAL);
    /* A full queue: ENOMEM, and what was taken is done. */
    int taken = 0;
    while (post_write(one, 0, taken, 0, 64) == 0 && taken < 1 << 20) taken++;
    CHECK(taken >= DEPTH && taken < 1 << 20);
    for (int at = 0; at < taken; at++) CHECK(wait_one(one).status == IBV_WC_SUCCESS);
    /* A key of nobody: an error completion, and the next request is flushed. */
    wrs[2].wr.rdma.rkey = 0x77;
    CHECK(!ibv_post_send(one->qp[0], &wrs[2], &bad));
    CHECK(wait_one(one).status == IBV_WC_REM_ACCESS_ERR);
    CHECK(!post_write(one, 0, 5, 0, 64) && wait_one(one).status == IBV_WC_WR_FLUSH_ERR);
}

int main(void) {
    struct loopback one = loopback();
    handles(&one);
    queries(&one);
    sizes(&one);
    memory(&one);
    unknown_bits(&one);
    flush_bits(&one);
    for (uint32_t wanted = 1; wanted <= 100; wanted *= 10)
        full_queue(&one, wanted);
    states(&one);
    lists(&one);
    end(&one);
    puts("refused");
}
