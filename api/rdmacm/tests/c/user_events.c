/* Events that the program writes itself, and names that are resolved beside it. The headers of older releases have
   neither, so both are looked up in the library. */
#define _GNU_SOURCE
#include "sides.h"
#include <dlfcn.h>

#define ADDRINFO_RESOLVED ((enum rdma_cm_event_type)16)
#define ADDRINFO_ERROR ((enum rdma_cm_event_type)17)
#define USER ((enum rdma_cm_event_type)18)
enum { SA = 16, DNS = 32 };

static void *function(const char *name, const char *version) {
    void *found = dlvsym(RTLD_DEFAULT, name, version);
    CHECK(found);
    return found;
}

static void user_events(struct rdma_event_channel *channel, struct rdma_cm_id *id) {
    int (*write_event)(struct rdma_cm_id *, enum rdma_cm_event_type, int, uint64_t) =
        function("rdma_write_cm_event", "RDMACM_1.4");
    uint64_t arg = 0x1122334455667788;
    CHECK(!write_event(id, USER, -7, arg) && !write_event(id, USER, 8, 0));
    struct rdma_cm_event *event = next(channel, USER);
    CHECK(event->id == id && event->status == -7 && !memcmp(&event->param, &arg, sizeof arg));
    CHECK(!strcmp(rdma_event_str(USER), "RDMA_CM_EVENT_USER") && !rdma_ack_cm_event(event));
    event = next(channel, USER);
    CHECK(event->status == 8 && !rdma_ack_cm_event(event));
    REFUSED(write_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
    REFUSED(write_event(NULL, USER, 0, 0), EINVAL);
}

static void names(struct rdma_event_channel *channel, struct rdma_cm_id *id) {
    int (*resolve)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *) =
        function("rdma_resolve_addrinfo", "RDMACM_1.4");
    int (*query)(struct rdma_cm_id *, struct rdma_addrinfo **) = function("rdma_query_addrinfo", "RDMACM_1.4");
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *found;
    struct sockaddr_in source = at(77), to = at(7174);
    hints.ai_src_addr = (struct sockaddr *)&source;
    hints.ai_src_len = sizeof source;
    REFUSED(query(id, &found), EINVAL);
    CHECK(!resolve(id, getenv("REMORA_ADDRESS"), "7174", &hints));
    memset(&source, 0, sizeof source);
    passes(channel, ADDRINFO_RESOLVED);
    source = at(77);
    for (int times = 0; times < 2; times++) {
        CHECK(!query(id, &found) && found->ai_port_space == RDMA_PS_TCP && !found->ai_next);
        CHECK(found->ai_dst_len == sizeof to && !memcmp(found->ai_dst_addr, &to, sizeof to));
        CHECK(found->ai_src_len == sizeof source && !memcmp(found->ai_src_addr, &source, sizeof source));
        rdma_freeaddrinfo(found);
    }
    CHECK(!resolve(id, "no address", "7174", &hints));
    struct rdma_cm_event *event = next(channel, ADDRINFO_ERROR);
    CHECK(event->status != 0 && !rdma_ack_cm_event(event));
    REFUSED(resolve(id, NULL, NULL, NULL), EINVAL);
    hints.ai_flags = SA;
    REFUSED(resolve(id, NULL, "7174", &hints), EOPNOTSUPP);
    hints.ai_flags = SA | DNS;
    REFUSED(resolve(id, NULL, "7174", &hints), EINVAL);
}

int main(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id, *alone;
    CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
    user_events(channel, id);
    names(channel, id);
    int (*create)(int) = function("repoll_create", "RDMACM_1.5");
    REFUSED(create(1), EOPNOTSUPP);
    /* An id without a channel waits for the answer. */
    int (*resolve)(struct rdma_cm_id *, const char *, const char *, const struct rdma_addrinfo *) =
        function("rdma_resolve_addrinfo", "RDMACM_1.4");
    CHECK(!rdma_create_id(NULL, &alone, NULL, RDMA_PS_TCP) && !resolve(alone, "127.0.0.1", "7174", NULL));
    CHECK(!rdma_destroy_id(alone) && !rdma_destroy_id(id));
    rdma_destroy_event_channel(channel);
    puts("told");
    return 0;
}
