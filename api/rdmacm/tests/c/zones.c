/* Link-local addresses: one address on two links is that of two hosts.
     zones serve NAME        serves one connection, and says NAME
     zones ask ADDRESS       asks for one, and prints what the server said
     zones resolve ADDRESS MS  prints the event, its status and the milliseconds that it took
     zones refuse            checks what is refused */
#include "check.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <time.h>

#define REFUSED(call, why) CHECK((errno = 0, (call) == -1 && errno == (why)))

static struct rdma_event_channel *channel;

static struct rdma_cm_event *next(enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event));
    if (event->event != type) {
        fprintf(stderr, "%s (status %d)\n", rdma_event_str(event->event), event->status);
        exit(1);
    }
    return event;
}

static struct rdma_cm_id *id_of(void) {
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    return id;
}

static void make_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    CHECK(!rdma_create_qp(id, NULL, &attr));
}

static unsigned scope(struct sockaddr *address) {
    CHECK(address->sa_family == AF_INET6);
    return ((struct sockaddr_in6 *)address)->sin6_scope_id;
}

static void serve(const char *name) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(7477)};
    struct rdma_cm_id *listens = id_of();
    CHECK(!rdma_bind_addr(listens, (struct sockaddr *)&any) && !rdma_listen(listens, 8));
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    CHECK(!rdma_ack_cm_event(event));
    unsigned own = if_nametoindex("eth0");
    CHECK(scope(rdma_get_local_addr(id)) == own && scope(rdma_get_peer_addr(id)) == own);
    make_qp(id);
    struct rdma_conn_param param = {.private_data = name, .private_data_len = strlen(name) + 1};
    CHECK(!rdma_accept(id, &param));
    CHECK(!rdma_ack_cm_event(next(RDMA_CM_EVENT_ESTABLISHED)));
    CHECK(!rdma_ack_cm_event(next(RDMA_CM_EVENT_DISCONNECTED)));
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(listens));
}

static struct addrinfo *address_of(const char *text) {
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *found;
    CHECK(!getaddrinfo(text, "7477", &hints, &found));
    return found;
}

static void ask(const char *text) {
    struct addrinfo *to = address_of(text);
    struct rdma_cm_id *id = id_of();
    CHECK(!rdma_resolve_addr(id, NULL, to->ai_addr, 5000));
    CHECK(!rdma_ack_cm_event(next(RDMA_CM_EVENT_ADDR_RESOLVED)) && !rdma_resolve_route(id, 1000));
    CHECK(!rdma_ack_cm_event(next(RDMA_CM_EVENT_ROUTE_RESOLVED)));
    unsigned wanted = scope(to->ai_addr);
    CHECK(scope(rdma_get_local_addr(id)) == wanted && scope(rdma_get_peer_addr(id)) == wanted);
    make_qp(id);
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_event *event = next(RDMA_CM_EVENT_ESTABLISHED);
    printf("%s\n", (const char *)event->param.conn.private_data);
    CHECK(!rdma_ack_cm_event(event) && !rdma_disconnect(id));
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
}

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void resolve(const char *text, int limit) {
    struct addrinfo *to = address_of(text);
    struct rdma_cm_id *id = id_of();
    struct rdma_cm_event *event;
    long begin = now();
    CHECK(!rdma_resolve_addr(id, NULL, to->ai_addr, limit) && !rdma_get_cm_event(channel, &event));
    printf("%s %d %ld\n", rdma_event_str(event->event), event->status, now() - begin);
    CHECK(!rdma_ack_cm_event(event));
    CHECK(!rdma_destroy_id(id));
}

static void refuse(void) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(7478)};
    CHECK(inet_pton(AF_INET6, "fe80::1", &at.sin6_addr) == 1);
    struct rdma_cm_id *id = id_of();
    REFUSED(rdma_bind_addr(id, (struct sockaddr *)&at), EINVAL);
    REFUSED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 1000), EINVAL);
    at.sin6_scope_id = 999;
    REFUSED(rdma_bind_addr(id, (struct sockaddr *)&at), ENODEV);
    REFUSED(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 1000), ENODEV);
    /* The same port on each link. */
    for (int link = 0; link < 2; link++) {
        struct rdma_cm_id *listens = id_of();
        at.sin6_scope_id = if_nametoindex(link ? "w0" : "v0");
        CHECK(!rdma_bind_addr(listens, (struct sockaddr *)&at) && !rdma_listen(listens, 1));
        CHECK(scope(rdma_get_local_addr(listens)) == at.sin6_scope_id);
    }
    REFUSED(rdma_bind_addr(id, (struct sockaddr *)&at), EADDRINUSE);
    puts("refused");
}

int main(int count, char **words) {
    CHECK(count > 1 && (channel = rdma_create_event_channel()));
    if (!strcmp(words[1], "serve")) serve(words[2]);
    else if (!strcmp(words[1], "ask")) ask(words[2]);
    else if (!strcmp(words[1], "resolve")) resolve(words[2], atoi(words[3]));
    else refuse();
    return 0;
}
