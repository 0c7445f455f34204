/* Datagrams to a group, the way back to a sender, the null region, and a completion read value by value. */
#include "loopback.h"
#include <arpa/inet.h>

enum { QKEY = 0x11111111, GRH = 40 };

static struct ibv_qp *datagram_qp(struct loopback *one) {
    struct ibv_qp_init_attr init = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_UD};
    init.cap = (struct ibv_qp_cap){8, 8, 2, 2, 0};
    struct ibv_qp *qp = ibv_create_qp(one->pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    CHECK(qp && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    return qp;
}

/* Sends 8 bytes by this handle and takes both completions. Returns the receiver's. */
static struct ibv_wc send_to(struct loopback *one, struct ibv_qp *from, struct ibv_qp *to, struct ibv_ah *ah, uint32_t qpn) {
    struct ibv_sge out = {.addr = (uintptr_t)one->memory, .length = 8, .lkey = one->mr->lkey};
    struct ibv_sge in = {.addr = (uintptr_t)one->memory + 1024, .length = GRH + 8, .lkey = one->mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 2, .sg_list = &in, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 1, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM}, *bad;
    send.imm_data = htonl(0x12345678);
    send.send_flags = IBV_SEND_SIGNALED;
    send.wr.ud.ah = ah;
    send.wr.ud.remote_qpn = qpn;
    send.wr.ud.remote_qkey = QKEY;
    CHECK(!ibv_post_recv(to, &receive, &bad_receive) && !ibv_post_send(from, &send, &bad));
    struct ibv_wc received, first = wait_one(one), second = wait_one(one);
    CHECK(first.status == IBV_WC_SUCCESS && second.status == IBV_WC_SUCCESS);
    received = first.wr_id == 2 ? first : second;
    CHECK(received.byte_len == GRH + 8 && received.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
    /* IPv4 behind UDP, as mlx5 has it. UCX looks for the destination's address by it. */
    CHECK(received.sl == 0xa);
    CHECK(ntohl(received.imm_data) == 0x12345678 && received.src_qp == from->qp_num);
    CHECK(!memcmp(one->memory, one->memory + 1024 + GRH, 8));
    return received;
}

static void to_a_group_and_back(struct loopback *one) {
    struct ibv_qp *from = datagram_qp(one), *to = datagram_qp(one);
    union ibv_gid group = {.raw = {0xff, 0x0e, [10] = 0xff, 0xff, 239, 255, 71, 9}}, host;
    CHECK(!ibv_query_gid(one->context, 1, 0, &host) && ibv_attach_mcast(to, &host, 0) == EINVAL);
    CHECK(ibv_attach_mcast(one->qp[0], &group, 0) == EINVAL && ibv_detach_mcast(to, &group, 0) == EINVAL);
    CHECK(!ibv_attach_mcast(to, &group, 0) && ibv_destroy_qp(to) == EBUSY);
    struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1, .grh.dgid = group};
    struct ibv_ah *ah = ibv_create_ah(one->pd, &attr);
    CHECK(ah);
    strcpy(one->memory, "to many");
    send_to(one, from, to, ah, 0xffffff);
    CHECK(!ibv_detach_mcast(to, &group, 0) && !ibv_destroy_ah(ah) && ibv_destroy_ah(ah) == EINVAL);
    attr.grh.dgid = host;
    CHECK((ah = ibv_create_ah(one->pd, &attr)));
    strcpy(one->memory, "to one.");
    struct ibv_wc wc = send_to(one, from, to, ah, to->qp_num);
    struct ibv_ah *back = ibv_create_ah_from_wc(one->pd, &wc, (struct ibv_grh *)(one->memory + 1024), 1);
    CHECK(back);
    strcpy(one->memory, "thanks.");
    send_to(one, to, from, back, wc.src_qp);
    CHECK(ibv_dealloc_pd(one->pd) == EBUSY);
    CHECK(!ibv_destroy_ah(ah) && !ibv_destroy_ah(back) && !ibv_destroy_qp(from) && !ibv_destroy_qp(to));
}

static void a_null_region(struct loopback *one) {
    struct ibv_mr *nothing = ibv_alloc_null_mr(one->pd);
    CHECK(nothing);
    memcpy(one->memory + 64, "header:payload", 14);
    memset(one->memory, 'x', 32);
    struct ibv_sge sges[2] = {{.length = 7, .lkey = nothing->lkey},
                              {.addr = (uintptr_t)one->memory, .length = 7, .lkey = one->mr->lkey}};
    struct ibv_qp_init_attr_ex init = {.send_cq = one->cq, .recv_cq = one->cq, .qp_type = IBV_QPT_RC, .pd = one->pd};
    init.cap = (struct ibv_qp_cap){4, 4, 2, 1, 32};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
    struct ibv_qp *a = ibv_create_qp_ex(one->context, &init), *b = ibv_create_qp_ex(one->context, &init);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a);
    CHECK(a && b && ex && !ibv_qp_to_qp_ex(one->qp[0]));
    move(one->context, a, b->qp_num);
    move(one->context, b, a->qp_num);
    ibv_wr_start(ex);
    ex->wr_id = 1, ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_read(ex, one->mr->rkey, (uintptr_t)one->memory + 64);
    ibv_wr_set_sge_list(ex, 2, sges);
    ex->wr_id = 2;
    ibv_wr_rdma_write(ex, one->mr->rkey, (uintptr_t)one->memory + 128);
    ibv_wr_set_inline_data(ex, "inline", 7);
    CHECK(!ibv_wr_complete(ex));
    CHECK(wait_one(one).wr_id == 1 && wait_one(one).wr_id == 2);
    CHECK(!memcmp(one->memory, "payloadx", 8) && !strcmp(one->memory + 128, "inline"));
    /* What was begun and given up leaves nothing; too much inline data takes all of it back. */
    ibv_wr_start(ex);
    ibv_wr_rdma_read(ex, one->mr->rkey, (uintptr_t)one->memory + 64);
    ibv_wr_set_sge_list(ex, 2, sges);
    ibv_wr_abort(ex);
    ibv_wr_start(ex);
    ibv_wr_rdma_write(ex, one->mr->rkey, (uintptr_t)one->memory + 128);
    ibv_wr_set_inline_data(ex, "other", 6);
    ibv_wr_rdma_write(ex, one->mr->rkey, (uintptr_t)one->memory + 128);
    ibv_wr_set_inline_data(ex, one->memory, 65);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    struct ibv_wc wc;
    for (int at = 0; at < 100; at++) CHECK(ibv_poll_cq(one->cq, 1, &wc) == 0);
    CHECK(!strcmp(one->memory + 128, "inline"));
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_dereg_mr(nothing));
}

static void value_by_value(struct loopback *one) {
    struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(one->context, &attr);
    CHECK(cq);
    struct ibv_poll_cq_attr none = {0};
    CHECK(ibv_start_poll(cq, &none) == ENOENT);
    struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){4, 4, 1, 1, 0};
    struct ibv_qp *kept = one->qp[0], *a = ibv_create_qp(one->pd, &init), *b = ibv_create_qp(one->pd, &init);
    CHECK(a && b);
    move(one->context, a, b->qp_num);
    move(one->context, b, a->qp_num);
    one->qp[0] = a;
    CHECK(!post_write(one, 0, 21, 0, 256) && !post_write(one, 0, 22, 0, 256));
    one->qp[0] = kept;
    uint64_t before = 0;
    for (uint64_t id = 21; id < 23; id++) {
        int polled;
        while ((polled = ibv_start_poll(cq, &none)) == ENOENT) {
        }
        CHECK(polled == 0 && cq->wr_id == id && cq->status == IBV_WC_SUCCESS);
        CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE && ibv_wc_read_qp_num(cq) == a->qp_num);
        uint64_t now = ibv_wc_read_completion_ts(cq);
        CHECK(now >= before && now > 0);
        before = now;
        ibv_end_poll(cq);
    }
    attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
    CHECK(!ibv_create_cq_ex(one->context, &attr) && errno == EOPNOTSUPP);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

int main(void) {
    struct loopback one = loopback();
    to_a_group_and_back(&one);
    a_null_region(&one);
    value_by_value(&one);
    end(&one);
    puts("delivered");
}
