/* What a queue pair was given is what it says, and what it was not given is zero. */
#include "loopback.h"

int main(void) {
    struct loopback one = loopback();
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr made = {.send_cq = one.cq, .recv_cq = one.cq, .qp_type = IBV_QPT_RC};
    made.cap = (struct ibv_qp_cap){.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    struct ibv_qp *fresh = ibv_create_qp(one.pd, &made);
    CHECK(fresh && !ibv_query_qp(fresh, &attr, IBV_QP_MIN_RNR_TIMER | IBV_QP_STATE, &init));
    CHECK(attr.qp_state == IBV_QPS_RESET && attr.min_rnr_timer == 0 && attr.timeout == 0);
    for (int timer = 0; timer < 32; timer++) {
        attr = (struct ibv_qp_attr){.min_rnr_timer = timer};
        CHECK(!ibv_modify_qp(one.qp[0], &attr, IBV_QP_MIN_RNR_TIMER));
        CHECK(!ibv_query_qp(one.qp[0], &attr, IBV_QP_MIN_RNR_TIMER, &init) && attr.min_rnr_timer == timer);
    }
    attr.min_rnr_timer = 32;
    CHECK(ibv_modify_qp(one.qp[0], &attr, IBV_QP_MIN_RNR_TIMER) == EINVAL);
    CHECK(!ibv_query_qp(one.qp[1], &attr, (IBV_QP_DEST_QPN << 1) - 1, &init));
    CHECK(attr.qp_state == IBV_QPS_RTS && attr.cur_qp_state == IBV_QPS_RTS && attr.path_mtu == IBV_MTU_1024);
    CHECK(attr.min_rnr_timer == 12 && attr.timeout == 14 && attr.retry_cnt == 7 && attr.rnr_retry == 7);
    CHECK(attr.max_rd_atomic == 4 && attr.max_dest_rd_atomic == 4 && attr.dest_qp_num == one.qp[0]->qp_num);
    CHECK(attr.rq_psn == 0 && attr.sq_psn == 0 && attr.pkey_index == 0 && attr.port_num == 1);
    CHECK(attr.ah_attr.is_global && attr.ah_attr.grh.sgid_index == 0 && attr.ah_attr.grh.hop_limit == 1);
    CHECK(init.qp_type == IBV_QPT_RC && attr.cap.max_send_wr >= DEPTH);
    CHECK(!ibv_destroy_qp(fresh));
    end(&one);
    puts("as given");
}
