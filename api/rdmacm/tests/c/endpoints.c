/* Endpoints, whose calls wait: a message each way, then the end; and ids that ask a thread for its answer. */
#include "sides.h"
#include <pthread.h>

static char port[8];

static struct rdma_cm_id *endpoint(int flags) {
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr attr = {.sq_sig_all = 1, .qp_type = IBV_QPT_RC};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    struct rdma_cm_id *id;
    CHECK(!rdma_getaddrinfo(getenv("REMORA_ADDRESS"), port, &hints, &found));
    CHECK(found->ai_qp_type == IBV_QPT_RC && found->ai_family == AF_INET && !found->ai_next);
    CHECK(!rdma_create_ep(&id, found, NULL, &attr));
    rdma_freeaddrinfo(found);
    return id;
}

/* Receives "ping" or "pong", and sends the other. */
static void exchange(struct rdma_cm_id *id, const char *say, const char *hear, int (*meet)(struct rdma_cm_id *)) {
    char bytes[16] = {0};
    struct ibv_mr *mr = rdma_reg_msgs(id, bytes, sizeof bytes);
    struct ibv_wc wc;
    CHECK(mr && !rdma_post_recv(id, NULL, bytes, 8, mr));
    CHECK(!meet(id) && id->event && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
    memcpy(bytes + 8, say, 4);
    CHECK(!rdma_post_send(id, NULL, bytes + 8, 4, mr, 0));
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && !memcmp(bytes, hear, 4));
    CHECK(!rdma_disconnect(id) && !rdma_dereg_mr(mr));
    rdma_destroy_ep(id);
}

static int accepts(struct rdma_cm_id *id) { return rdma_accept(id, NULL); }
static int connects(struct rdma_cm_id *id) { return rdma_connect(id, NULL); }

static void *serve(void *listens) {
    struct rdma_cm_id *id;
    CHECK(!rdma_get_request(listens, &id) && id->qp && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    exchange(id, "pong", "ping", accepts);
    return NULL;
}

int main(void) {
    pthread_t server;
    strcpy(port, "0");
    struct rdma_cm_id *listens = endpoint(RAI_PASSIVE);
    CHECK(!rdma_listen(listens, 0));
    snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(listens)));
    for (int round = 0; round < 3; round++) {
        CHECK(!pthread_create(&server, NULL, serve, listens));
        exchange(endpoint(0), "ping", "pong", connects);
        CHECK(!pthread_join(server, NULL));
    }
    rdma_destroy_ep(listens);
    /* Nobody listens there now. */
    struct rdma_cm_id *id = endpoint(0);
    REFUSED(rdma_connect(id, NULL), ECONNREFUSED);
    rdma_destroy_ep(id);
    puts("exchanged");
}
