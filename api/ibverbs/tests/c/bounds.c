/* As many objects as there may be: one more is ENOMEM, and one less makes place for it. */
#include "loopback.h"

/* Fills an array by `make`, up to the first NULL, and ends each by `unmake`. */
#define FILL(type, most, make, unmake)                            \
    do {                                                          \
        static type *all[(most) + 1];                             \
        int count = 0;                                            \
        while (count <= (most) && (all[count] = (make))) count++; \
        CHECK(errno == ENOMEM);                                   \
        CHECK(count > (most) - 16 && count <= (most));            \
        CHECK(!unmake(all[--count]));                             \
        CHECK((all[count] = (make)));                             \
        for (int at = 0; at <= count; at++) CHECK(!unmake(all[at])); \
    } while (0)

/* ofi_rxm of libfabric asks for 196608 at once, whatever the device says. */
static void longest_queue(struct ibv_context *context, int most) {
    CHECK(most >= 196608);
    struct ibv_cq *cq = ibv_create_cq(context, most, NULL, NULL, 0);
    CHECK(cq && cq->cqe >= most && !ibv_destroy_cq(cq));
    CHECK(!ibv_create_cq(context, most + 1, NULL, NULL, 0) && errno == EINVAL);
    CHECK((cq = ibv_create_cq(context, 1, NULL, NULL, 0)));
    CHECK(!ibv_resize_cq(cq, most) && cq->cqe >= most && ibv_resize_cq(cq, most + 1) == EINVAL);
    CHECK(!ibv_destroy_cq(cq));
}

int main(void) {
    struct loopback one = loopback();
    struct ibv_device_attr attr;
    CHECK(!ibv_query_device(one.context, &attr));
    CHECK(attr.max_qp == 1 << 14 && attr.max_cq == 1 << 12 && attr.max_mr == 1 << 16 && attr.max_pd == 1 << 12);
    CHECK(attr.max_srq == 1 << 10 && attr.max_ah == 1 << 14);
    longest_queue(one.context, attr.max_cqe);
    FILL(struct ibv_pd, 1 << 12, ibv_alloc_pd(one.context), ibv_dealloc_pd);
    FILL(struct ibv_cq, 1 << 12, ibv_create_cq(one.context, 1, NULL, NULL, 0), ibv_destroy_cq);
    FILL(struct ibv_mr, 1 << 16, ibv_reg_mr(one.pd, one.memory, 64, 0), ibv_dereg_mr);
    struct ibv_srq_init_attr small = {.attr = {.max_wr = 1, .max_sge = 1}};
    FILL(struct ibv_srq, 1 << 10, ibv_create_srq(one.pd, &small), ibv_destroy_srq);
    struct ibv_ah_attr way = {.port_num = 1, .is_global = 1};
    CHECK(!ibv_query_gid(one.context, 1, 0, &way.grh.dgid));
    FILL(struct ibv_ah, 1 << 14, ibv_create_ah(one.pd, &way), ibv_destroy_ah);
    struct ibv_qp_init_attr init = {.send_cq = one.cq, .recv_cq = one.cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
    FILL(struct ibv_qp, 1 << 14, ibv_create_qp(one.pd, &init), ibv_destroy_qp);
    CHECK(!post_write(&one, 0, 1, 0, 64) && wait_one(&one).status == IBV_WC_SUCCESS);
    end(&one);
    puts("bounded");
}
