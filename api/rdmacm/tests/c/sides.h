/* Both sides of a connection at the address in REMORA_ADDRESS, for the programs of this folder. */
#ifndef SIDES_H
#define SIDES_H

#include "check.h"
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <unistd.h>

#define REFUSED(call, why) CHECK((errno = 0, (call) == -1 && errno == (why)))

static inline struct sockaddr_in at(uint16_t port) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, getenv("REMORA_ADDRESS"), &where.sin_addr) == 1);
    return where;
}

static inline struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != type) {
        fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(event->event), event->status, rdma_event_str(type));
        exit(1);
    }
    return event;
}

static inline void passes(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    CHECK(!rdma_ack_cm_event(next(channel, type)));
}

static inline void make_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    CHECK(!rdma_create_qp(id, NULL, &attr));
}

/* A listener of the channel; its port is chosen by the broker. */
static inline struct rdma_cm_id *listener(struct rdma_event_channel *channel, enum rdma_port_space space) {
    struct rdma_cm_id *id;
    struct sockaddr_in any = at(0);
    CHECK(!rdma_create_id(channel, &id, "the listener's", space));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&any) && !rdma_listen(id, 8));
    CHECK(rdma_get_src_port(id) != 0);
    return id;
}

/* An id of the channel whose route to this port is known. */
static inline struct rdma_cm_id *routed(struct rdma_event_channel *channel, enum rdma_port_space space, uint16_t port) {
    struct rdma_cm_id *id;
    struct sockaddr_in to = at(port);
    CHECK(!rdma_create_id(channel, &id, "the client's", space));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
    passes(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(id->verbs && id->pd && id->port_num == 1);
    CHECK(!rdma_resolve_route(id, 2000));
    passes(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(id->route.num_paths == 1);
    return id;
}

#endif
