/* Asynchronous events, and ends that wait until they are acknowledged; an XRC target with two handles. */
#include "loopback.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

static struct loopback one;
static struct ibv_srq *srq;
static atomic_int acknowledged;

static struct ibv_async_event next(enum ibv_event_type wanted) {
    struct ibv_async_event event;
    for (;;) {
        CHECK(!ibv_get_async_event(one.context, &event));
        if (event.event_type == wanted) return event;
        ibv_ack_async_event(&event);
    }
}

static void *destroy(void *none) {
    CHECK(!ibv_destroy_srq(srq));
    CHECK(atomic_load(&acknowledged));
    return none;
}

static void *destroy_qp(void *none) {
    CHECK(!ibv_destroy_qp(one.qp[0]));
    CHECK(atomic_load(&acknowledged));
    return none;
}

/* Ends an object by `how` in a thread, which waits until its event is acknowledged. */
static void ends_late(void *(*how)(void *), struct ibv_async_event *event) {
    pthread_t thread;
    atomic_store(&acknowledged, 0);
    CHECK(!pthread_create(&thread, NULL, how, NULL));
    struct timespec while_it_waits = {.tv_nsec = 50000000};
    nanosleep(&while_it_waits, NULL);
    atomic_store(&acknowledged, 1);
    ibv_ack_async_event(event);
    CHECK(!pthread_join(thread, NULL));
}

static void limit_of_a_shared_queue(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    CHECK((srq = ibv_create_srq(one.pd, &init)) && init.attr.max_wr >= 8);
    struct ibv_sge sge = {.addr = (uintptr_t)one.memory, .length = 8, .lkey = one.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    for (int at = 0; at < 3; at++) CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
    struct ibv_srq_attr attr = {.srq_limit = 2};
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    CHECK(!ibv_query_srq(srq, &attr) && attr.srq_limit == 2);
    attr.srq_limit = 4;
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    struct ibv_async_event event = next(IBV_EVENT_SRQ_LIMIT_REACHED);
    CHECK(event.element.srq == srq);
    CHECK(!ibv_query_srq(srq, &attr) && attr.srq_limit == 0);
    ends_late(destroy, &event);
}

static void a_failed_queue_pair(void) {
    struct ibv_mr alien = *one.mr;
    alien.rkey ^= 0x5500;
    struct ibv_mr *kept = one.mr;
    one.mr = &alien;
    CHECK(!post_write(&one, 0, 1, 0, 64));
    one.mr = kept;
    CHECK(wait_one(&one).status == IBV_WC_REM_ACCESS_ERR);
    struct ibv_async_event event = next(IBV_EVENT_QP_FATAL);
    CHECK(event.element.qp == one.qp[0]);
    /* Events that nobody reads hold nobody up, and go with their object. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK(!ibv_modify_qp(one.qp[0], &attr, IBV_QP_STATE) && one.qp[0]->state == IBV_QPS_RESET);
    ends_late(destroy_qp, &event);
    struct ibv_qp_init_attr init = {.send_cq = one.cq, .recv_cq = one.cq, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
    CHECK((one.qp[0] = ibv_create_qp(one.pd, &init)));
}

static void a_target_with_two_handles(void) {
    struct ibv_xrcd_init_attr of_nobody = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *domain = ibv_open_xrcd(one.context, &of_nobody);
    CHECK(domain);
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain};
    struct ibv_qp *target = ibv_create_qp_ex(one.context, &init);
    CHECK(target);
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = target->qp_num, .xrcd = domain, .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *again = ibv_open_qp(one.context, &open);
    CHECK(again && again != target && again->qp_num == target->qp_num);
    open.qp_num++;
    CHECK(!ibv_open_qp(one.context, &open) && errno == EINVAL);
    CHECK(ibv_close_xrcd(domain) == EBUSY);
    CHECK(!ibv_destroy_qp(target));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(!ibv_modify_qp(again, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    CHECK(ibv_close_xrcd(domain) == EBUSY);
    CHECK(!ibv_destroy_qp(again) && !ibv_close_xrcd(domain));
}

int main(void) {
    one = loopback();
    limit_of_a_shared_queue();
    a_failed_queue_pair();
    a_target_with_two_handles();
    end(&one);
    puts("told");
}
