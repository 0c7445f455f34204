/* Bad input is refused with the errno of rdma-core's library. An event says what cannot be reached. */
#include "sides.h"

static struct rdma_event_channel *channel;

static struct rdma_cm_id *fresh(enum rdma_port_space space) {
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, space));
    return id;
}

int main(void) {
    struct rdma_cm_id *id, *other, *gone;
    struct sockaddr_in here = at(0), elsewhere = at(0), to = at(7174);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr odd = {.sa_family = AF_UNIX};
    struct rdma_conn_param param = {.private_data = "x", .private_data_len = 57};
    struct rdma_cm_event *event;
    uint8_t tos = 0x20, code = 32;
    int yes = 1;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    int mask;
    inet_pton(AF_INET, "192.0.2.1", &elsewhere.sin_addr);
    CHECK((channel = rdma_create_event_channel()));
    REFUSED(rdma_create_id(channel, &id, NULL, 0x7777), EINVAL);
    REFUSED(rdma_create_id(channel, &id, NULL, RDMA_PS_IPOIB), EPROTONOSUPPORT);
    REFUSED(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP), EINVAL);
    REFUSED(rdma_get_cm_event(NULL, &event), EINVAL);
    REFUSED(rdma_ack_cm_event(NULL), EINVAL);
    REFUSED(rdma_destroy_id(NULL), EINVAL);

    id = fresh(RDMA_PS_TCP);
    REFUSED(rdma_bind_addr(id, NULL), EINVAL);
    REFUSED(rdma_bind_addr(id, &odd), EINVAL);
    REFUSED(rdma_bind_addr(id, (struct sockaddr *)&elsewhere), EADDRNOTAVAIL);
    REFUSED(rdma_connect(id, NULL), EINVAL);
    REFUSED(rdma_accept(id, NULL), EINVAL);
    REFUSED(rdma_disconnect(id), EINVAL);
    REFUSED(rdma_resolve_route(id, 1), EINVAL);
    REFUSED(rdma_establish(id), EINVAL);
    REFUSED(rdma_reject(id, NULL, 0), EINVAL);
    REFUSED(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 2), EINVAL);
    REFUSED(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code, 1), EINVAL);
    REFUSED(rdma_set_option(id, 7, 7, &code, 1), EOPNOTSUPP);
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
    CHECK(!rdma_bind_addr(id, (struct sockaddr *)&here));
    REFUSED(rdma_bind_addr(id, (struct sockaddr *)&here), EINVAL);
    CHECK(id->verbs && !rdma_listen(id, 1));
    REFUSED(rdma_listen(id, 1), EINVAL);
    REFUSED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1), EINVAL);
    REFUSED(rdma_get_request(id, &other), EINVAL);

    other = fresh(RDMA_PS_TCP);
    here.sin_port = rdma_get_src_port(id);
    REFUSED(rdma_bind_addr(other, (struct sockaddr *)&here), EADDRINUSE);
    CHECK(!rdma_resolve_addr(other, NULL, (struct sockaddr *)&six, 1));
    event = next(channel, RDMA_CM_EVENT_ADDR_ERROR);
    CHECK(event->status == -ENODEV && !rdma_ack_cm_event(event));
    REFUSED(rdma_ack_cm_event(event), EINVAL);
    CHECK(!rdma_destroy_id(other));

    /* Private data that are too long, then nobody who listens. */
    other = routed(channel, RDMA_PS_TCP, 9);
    REFUSED(rdma_connect(other, NULL), EINVAL);
    make_qp(other);
    struct ibv_qp_init_attr again = {.qp_type = IBV_QPT_RC};
    REFUSED(rdma_create_qp(other, NULL, &again), EINVAL);
    REFUSED(rdma_connect(other, &param), EINVAL);
    param = (struct rdma_conn_param){.responder_resources = 254};
    REFUSED(rdma_connect(other, &param), EINVAL);
    CHECK(!rdma_connect(other, NULL));
    event = next(channel, RDMA_CM_EVENT_REJECTED);
    CHECK(event->status == 8 && !rdma_ack_cm_event(event));
    rdma_destroy_qp(other);
    gone = other;
    CHECK(!rdma_destroy_id(other));
    REFUSED(rdma_destroy_id(gone), EINVAL);
    REFUSED(rdma_connect(gone, NULL), EINVAL);

    other = fresh(RDMA_PS_UDP);
    REFUSED(rdma_join_multicast(other, (struct sockaddr *)&to, NULL), EINVAL);
    REFUSED(rdma_leave_multicast(other, (struct sockaddr *)&to), EADDRNOTAVAIL);
    CHECK(!rdma_destroy_id(other) && !rdma_destroy_id(id));
    CHECK(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
    rdma_destroy_event_channel(channel);
    REFUSED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), EINVAL);
    puts("refused");
}
