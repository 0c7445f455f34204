/* Memory windows: the key that a binding gives, bindings that fail or are flushed, and keys that are invalidated. */
#include "loopback.h"

enum { PART = 4096, RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND };

static struct loopback one;
static struct ibv_mr *region;

/* Posts a request without bytes, and returns the status of its completion. */
static enum ibv_wc_status ask(struct ibv_qp *qp, struct ibv_send_wr wr) {
    struct ibv_send_wr *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK(!ibv_post_send(qp, &wr, &bad));
    return wait_one(&one).status;
}

static enum ibv_wc_status bind_2(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t key, uint64_t length) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = key;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){region, (uintptr_t)one.memory, length, IBV_ACCESS_REMOTE_WRITE};
    return ask(qp, wr);
}

static enum ibv_wc_status bind_1(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t length) {
    struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = (struct ibv_mw_bind_info){region, (uintptr_t)one.memory, length, IBV_ACCESS_REMOTE_WRITE};
    CHECK(!ibv_bind_mw(qp, mw, &bind));
    return wait_one(&one).status;
}

static enum ibv_wc_status invalidate(struct ibv_qp *qp, uint32_t key) {
    return ask(qp, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key});
}

static enum ibv_wc_status write_by(struct ibv_qp *qp, uint32_t key) {
    struct ibv_sge sge = {.addr = (uintptr_t)one.memory, .length = 8, .lkey = one.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = (uintptr_t)one.memory + 64;
    wr.wr.rdma.rkey = key;
    return ask(qp, wr);
}

static void begin(void) {
    one = loopback();
    CHECK((region = ibv_reg_mr(one.pd, one.memory, PART, RIGHTS)));
}

/* The window, the region and the domain can be ended however the bindings ended. */
static void finish(struct ibv_mw *mw) {
    CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(region));
    end(&one);
}

static void low_byte(void) {
    begin();
    struct ibv_mw *mw = ibv_alloc_mw(one.pd, IBV_MW_TYPE_2);
    CHECK(mw);
    uint32_t window = mw->rkey & ~0xffu;
    for (uint32_t turn = 0; turn < 3; turn++) {
        uint32_t asked = (uint32_t[]){17, 0xdeadbeef, mw->rkey + 1}[turn];
        CHECK(bind_2(one.qp[1], mw, asked, PART) == IBV_WC_SUCCESS);
        CHECK(mw->rkey == (window | (asked & 0xff)));
        CHECK(write_by(one.qp[0], mw->rkey) == IBV_WC_SUCCESS);
        CHECK(invalidate(one.qp[1], mw->rkey) == IBV_WC_SUCCESS);
    }
    finish(mw);
}

/* A binding of the second queue pair fails, or is flushed; the first one binds the window then. */
static void failed_bind(enum ibv_mw_type type, int flushed) {
    begin();
    struct ibv_mw *mw = ibv_alloc_mw(one.pd, type);
    CHECK(mw);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (flushed)
        CHECK(!ibv_modify_qp(one.qp[1], &attr, IBV_QP_STATE));
    enum ibv_wc_status expected = flushed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_MW_BIND_ERR;
    uint64_t length = flushed ? PART : 2 * PART;
    if (type == IBV_MW_TYPE_1) {
        CHECK(bind_1(one.qp[1], mw, length) == expected);
        CHECK(bind_1(one.qp[0], mw, PART) == IBV_WC_SUCCESS);
    } else {
        uint32_t key = mw->rkey;
        CHECK(bind_2(one.qp[1], mw, ibv_inc_rkey(key), length) == expected);
        CHECK(bind_2(one.qp[0], mw, ibv_inc_rkey(ibv_inc_rkey(key)), PART) == IBV_WC_SUCCESS);
        CHECK(mw->rkey == ibv_inc_rkey(ibv_inc_rkey(key)));
    }
    finish(mw);
}

static void ended_after_a_failure(uint32_t key) {
    begin();
    struct ibv_mw *mw = ibv_alloc_mw(one.pd, IBV_MW_TYPE_2);
    CHECK(mw && bind_2(one.qp[1], mw, key, 2 * PART) == IBV_WC_MW_BIND_ERR);
    finish(mw);
}

static void of_another_queue_pair(void) {
    begin();
    struct ibv_mw *mw = ibv_alloc_mw(one.pd, IBV_MW_TYPE_2);
    CHECK(mw && bind_2(one.qp[1], mw, 17, PART) == IBV_WC_SUCCESS);
    CHECK(invalidate(one.qp[0], mw->rkey) == IBV_WC_MW_BIND_ERR);
    finish(mw);
}

int main(void) {
    low_byte();
    for (int flushed = 0; flushed < 2; flushed++) {
        failed_bind(IBV_MW_TYPE_1, flushed);
        failed_bind(IBV_MW_TYPE_2, flushed);
    }
    ended_after_a_failure(17);
    of_another_queue_pair();
    puts("as they were");
    return 0;
}
