/* What no function of 1RMA takes: each mistake is an errno or a status, and what was there goes on. */
#include <errno.h>
#include <remora/rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WANT(wanted, call)                                                                            \
    do {                                                                                              \
        long found = (long)(call);                                                                    \
        if (found != (long)(wanted)) {                                                                \
            fprintf(stderr, "line %d: %s is %ld (%s)\n", __LINE__, #call, found, remora_error());     \
            _exit(1);                                                                                 \
        }                                                                                             \
    } while (0)

enum { LENGTH = 8192, PATIENCE = 600000 };

struct nic {
    struct remora_context *context;
    struct remora_pd *pd;
    struct remora_rma *rma;
    struct remora_rma_region *region;
    struct remora_rma_portal *portal;
};

static unsigned char ours[LENGTH] __attribute__((aligned(64))), theirs[LENGTH] __attribute__((aligned(64)));

static struct nic open_nic(unsigned char *memory) {
    struct nic nic;
    struct remora_device_attr device = {REMORA_PORT_UDP, 1, "127.0.0.1:0", NULL, NULL};
    struct remora_rma_attr attr;
    WANT(0, remora_open(&device, &nic.context));
    WANT(0, remora_alloc_pd(nic.context, &nic.pd));
    WANT(0, remora_rma_attr_default(&attr));
    attr.regions = 2;
    attr.slots = 16;
    attr.timeout_us = 4000000; /* Valgrind and a busy machine make peers slow */
    WANT(0, remora_open_rma(nic.context, &attr, &nic.rma));
    WANT(0, remora_rma_reg_mr(nic.rma, nic.pd, memory, LENGTH, 7, NULL, &nic.region));
    WANT(0, remora_rma_create_portal(nic.rma, nic.pd, 16, &nic.portal));
    return nic;
}

static void close_nic(struct nic *nic) {
    /* Handles may go in any order. */
    WANT(0, remora_close(nic->context));
    WANT(0, remora_close_rma(nic->rma));
    WANT(0, remora_dealloc_pd(nic->pd));
    WANT(0, remora_rma_dereg_mr(nic->region));
    WANT(0, remora_rma_destroy_portal(nic->portal));
}

static void attributes(void) {
    struct remora_context *context;
    struct remora_device_attr device = {REMORA_PORT_UDP, 0, "127.0.0.1:0", NULL, NULL};
    struct remora_rma_attr usual, attr;
    struct remora_rma *rma, *second;
    WANT(0, remora_open(&device, &context));
    WANT(EINVAL, remora_rma_attr_default(NULL));
    WANT(0, remora_rma_attr_default(&usual));
    WANT(EINVAL, remora_open_rma(NULL, &usual, &rma));
    WANT(EINVAL, remora_open_rma(context, NULL, &rma));
    WANT(EINVAL, remora_open_rma(context, &usual, NULL));
#define REFUSED(field, value)                               \
    do {                                                    \
        attr = usual;                                       \
        attr.field = value;                                 \
        WANT(EINVAL, remora_open_rma(context, &attr, &rma)); \
        WANT(1, strstr(remora_error(), #field) != NULL);    \
    } while (0)
    REFUSED(regions, 0);
    REFUSED(regions, (1 << 20) + 1);
    REFUSED(keys, 1);
    REFUSED(keys, UINT32_MAX);
    REFUSED(slots, 0);
    REFUSED(slots, 32768);
    REFUSED(served, 0);
    REFUSED(served, 65536);
    REFUSED(window, 4095);
    REFUSED(window, UINT32_MAX);
    REFUSED(dispatch_timeout_us, 0);
    REFUSED(timeout_us, 4000001);
    WANT(0, remora_open_rma(context, &usual, &rma));
    WANT(EBUSY, remora_open_rma(context, &usual, &second));
    WANT(0, remora_close_rma(rma));
    WANT(0, remora_open_rma(context, &usual, &rma));
    WANT(EINVAL, remora_close_rma(NULL));
    WANT(EINVAL, remora_close_rma((struct remora_rma *)context));
    WANT(0, remora_close_rma(rma));
    WANT(0, remora_close(context));
}

static void regions(struct nic *nic, struct nic *other) {
    static const unsigned char zeros[16], key[16] = {1};
    struct remora_rma_region *region, *one_more;
    struct remora_rma_identity who;
    struct remora_rma_grant grant, again;
    uint64_t length;
    uint32_t id;
    WANT(EINVAL, remora_rma_reg_mr(NULL, nic->pd, ours, LENGTH, 1, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, NULL, ours, LENGTH, 1, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, other->pd, ours, LENGTH, 1, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, NULL, LENGTH, 1, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, ours, 0, 1, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, ours, SIZE_MAX, 1, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, ours, LENGTH, 8, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, ours, LENGTH, 256, NULL, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, ours, LENGTH, 1, zeros, &region));
    WANT(EINVAL, remora_rma_reg_mr(nic->rma, nic->pd, ours, LENGTH, 1, NULL, NULL));
    WANT(0, remora_rma_reg_mr(nic->rma, nic->pd, ours, LENGTH, 1, key, &region));
    WANT(ENOMEM, remora_rma_reg_mr(nic->rma, nic->pd, ours, LENGTH, 1, NULL, &one_more));
    WANT(EINVAL, remora_rma_region_id(NULL, &id));
    WANT(EINVAL, remora_rma_region_id(region, NULL));
    WANT(0, remora_rma_region_id(region, &id));
    WANT(EINVAL, remora_rma_set_key(NULL, key));
    WANT(EINVAL, remora_rma_set_key(region, zeros));
    WANT(EINVAL, remora_rma_identity(NULL, &who));
    WANT(EINVAL, remora_rma_identity(nic->portal, NULL));
    WANT(0, remora_rma_identity(nic->portal, &who));
    WANT(getpid(), who.pid);
    WANT(EINVAL, remora_rma_grant(NULL, &who, 1, NULL, &grant));
    WANT(EINVAL, remora_rma_grant(region, NULL, 1, NULL, &grant));
    WANT(EINVAL, remora_rma_grant(region, &who, 8, NULL, &grant));
    WANT(EINVAL, remora_rma_grant(region, &who, 1, zeros, &grant));
    WANT(EINVAL, remora_rma_grant(region, &who, 1, NULL, NULL));
    WANT(0, remora_rma_grant(region, &who, 1, NULL, &grant));
    /* The same under the same key, and other keys under another one. */
    WANT(0, remora_rma_grant(region, &who, 1, key, &again));
    WANT(0, memcmp(&grant, &again, sizeof grant));
    WANT(0, remora_rma_set_key(region, NULL));
    WANT(0, remora_rma_grant(region, &who, 1, NULL, &again));
    WANT(1, memcmp(&grant, &again, sizeof grant) != 0);
    WANT(EINVAL, remora_rma_grant_length(NULL, &length));
    WANT(EINVAL, remora_rma_grant_length(&grant, NULL));
    WANT(0, remora_rma_grant_length(&grant, &length));
    WANT(LENGTH, length);
    WANT(EINVAL, remora_rma_reach(NULL, &grant));
    WANT(EINVAL, remora_rma_reach(nic->rma, NULL));
    WANT(0, remora_rma_reach(nic->rma, &grant));
    memset(&grant, 0, sizeof grant);
    WANT(EINVAL, remora_rma_grant_length(&grant, &length));
    WANT(EINVAL, remora_rma_dereg_mr(NULL));
    WANT(0, remora_rma_dereg_mr(region));
}

static void portals(struct nic *nic, struct nic *other) {
    struct remora_rma_portal *portal;
    struct remora_rma_wc wc;
    WANT(EINVAL, remora_rma_create_portal(NULL, nic->pd, 4, &portal));
    WANT(EINVAL, remora_rma_create_portal(nic->rma, NULL, 4, &portal));
    WANT(EINVAL, remora_rma_create_portal(nic->rma, other->pd, 4, &portal));
    WANT(EINVAL, remora_rma_create_portal(nic->rma, nic->pd, 0, &portal));
    WANT(EINVAL, remora_rma_create_portal(nic->rma, nic->pd, 65537, &portal));
    WANT(EINVAL, remora_rma_create_portal(nic->rma, nic->pd, 4, NULL));
    WANT(ENOMEM, remora_rma_create_portal(nic->rma, nic->pd, 4, &portal));
    WANT(EINVAL, remora_rma_destroy_portal(NULL));
    WANT(-EINVAL, remora_rma_poll(NULL, 1, &wc));
    WANT(-EINVAL, remora_rma_poll(nic->portal, 1, NULL));
    WANT(-EINVAL, remora_rma_poll(nic->portal, -1, &wc));
    WANT(0, remora_rma_poll(nic->portal, 0, &wc));
    WANT(0, remora_rma_poll(nic->portal, 1, &wc));
    WANT(-EINVAL, remora_rma_wait(NULL, 1, &wc, 1));
    WANT(-ETIMEDOUT, remora_rma_wait(nic->portal, 1, &wc, 1));
}

static void status_is(struct nic *nic, const struct remora_rma_wr *wr, uint32_t status) {
    struct remora_rma_wc wc;
    WANT(0, remora_rma_post(nic->portal, wr));
    WANT(1, remora_rma_wait(nic->portal, 1, &wc, PATIENCE));
    WANT(status, wc.status);
    WANT(1, wc.wr_id == wr->wr_id);
}

static void transfers(struct nic *nic, struct nic *server) {
    struct remora_rma_identity who;
    struct remora_rma_grant grant, none, nobody;
    WANT(0, remora_rma_identity(nic->portal, &who));
    WANT(0, remora_rma_grant(server->region, &who, REMORA_RMA_RIGHT_READ, NULL, &grant));
    memset(&none, 0, sizeof none);
    struct remora_rma_wr good = {UINT64_MAX, nic->region, 0, &grant, 0, LENGTH, REMORA_RMA_READ, 0, PATIENCE}, wr;
    WANT(EINVAL, remora_rma_post(NULL, &good));
    WANT(EINVAL, remora_rma_post((struct remora_rma_portal *)nic->rma, &good));
    WANT(EINVAL, remora_rma_post(nic->portal, NULL));
#define WRONG(change)                                   \
    do {                                                \
        wr = good;                                      \
        change;                                         \
        WANT(EINVAL, remora_rma_post(nic->portal, &wr)); \
    } while (0)
    WRONG(wr.local = NULL);
    WRONG(wr.local = (struct remora_rma_region *)nic->portal);
    WRONG(wr.local = server->region);
    WRONG(wr.grant = NULL);
    WRONG(wr.grant = &none);
    WRONG(wr.length = 0);
    WRONG(wr.length = LENGTH + 1);
    WRONG(wr.length = UINT64_MAX);
    WRONG(wr.local_offset = 1);
    WRONG(wr.remote_offset = UINT64_MAX);
    WRONG(wr.opcode = 3);
    WRONG(wr.opcode = REMORA_RMA_REKEY);
    WRONG((wr.opcode = REMORA_RMA_REKEY, wr.length = 16, wr.remote_offset = 16));
    WRONG(wr.bulk = 2);
    status_is(nic, &good, REMORA_RMA_OK);
    WANT(0, memcmp(ours, theirs, LENGTH));
    /* The grant has the key for reads alone. */
    wr = good;
    wr.opcode = REMORA_RMA_WRITE;
    status_is(nic, &wr, REMORA_RMA_AUTHENTICATION_FAILURE);
    /* Nobody listens there: UDP port 1. */
    nobody = grant;
    nobody.bytes[16] = 1;
    nobody.bytes[17] = 0;
    wr = good;
    wr.length = 1;
    wr.grant = &nobody;
    wr.timeout_ms = 0;
    status_is(nic, &wr, REMORA_RMA_TIMEOUT);
    /* So many may be under way, and all end. */
    struct remora_rma_wc wc[64];
    int posted = 0, ended = 0;
    wr = good;
    wr.length = 1;
    wr.bulk = 1;
    wr.timeout_ms = PATIENCE;
    for (; posted < 1024; posted++) WANT(0, remora_rma_post(nic->portal, &wr));
    WANT(ENOMEM, remora_rma_post(nic->portal, &wr));
    while (ended < posted) {
        int taken = remora_rma_wait(nic->portal, 64, wc, PATIENCE);
        WANT(1, taken > 0);
        for (int at = 0; at < taken; at++) WANT(REMORA_RMA_OK, wc[at].status);
        ended += taken;
    }
    WANT(0, remora_rma_poll(nic->portal, 64, wc));
}

static void child(struct nic *nic) {
    struct remora_rma_wr wr;
    struct remora_rma_wc wc;
    struct remora_rma_identity who;
    memset(&wr, 0, sizeof wr);
    WANT(EPERM, remora_rma_post(nic->portal, &wr));
    WANT(-EPERM, remora_rma_wait(nic->portal, 1, &wc, PATIENCE));
    WANT(EPERM, remora_rma_identity(nic->portal, &who));
    WANT(EPERM, remora_rma_set_key(nic->region, NULL));
    close_nic(nic);
}

int main(void) {
    for (int at = 0; at < LENGTH; at++) theirs[at] = (unsigned char)(at * 7);
    attributes();
    struct nic nic = open_nic(ours), server = open_nic(theirs);
    regions(&nic, &server);
    portals(&nic, &server);
    transfers(&nic, &server);
    pid_t pid = fork();
    if (pid == 0) {
        child(&nic);
        _exit(0);
    }
    int status;
    WANT(pid, waitpid(pid, &status, 0));
    WANT(0, status);
    transfers(&nic, &server);
    close_nic(&nic);
    close_nic(&server);
    puts("every mistake was an errno");
    return 0;
}
