/* libfabric's provider of verbs: a client writes into a server's memory, and reads it back.
 *
 *   rma PORT            serves one client
 *   rma PORT ADDRESS    is the client
 */
#include "../c/check.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <stdint.h>

enum { BYTES = 1 << 20 };

/* Where the server's memory is. It comes with the acceptance. */
struct target {
    uint64_t address, key;
};

struct side {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_eq *events;
    struct fid_domain *domain;
    struct fid_cq *completions;
    struct fid_ep *endpoint;
    struct fid_mr *region;
    char *memory;
};

static struct fi_info *find(const char *address, const char *port, uint64_t flags) {
    struct fi_info *hints = fi_allocinfo(), *found;
    CHECK(hints);
    hints->ep_attr->type = FI_EP_MSG;
    hints->caps = FI_MSG | FI_RMA;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("verbs");
    CHECK(!fi_getinfo(FI_VERSION(1, 15), address, port, flags, hints, &found));
    fi_freeinfo(hints);
    return found;
}

/* What both sides need before they are connected; `info` is what the endpoint is made from. */
static void prepare(struct side *side, struct fi_info *info) {
    struct fi_cq_attr attr = {.size = 16, .format = FI_CQ_FORMAT_CONTEXT};
    CHECK(!fi_domain(side->fabric, info, &side->domain, NULL));
    CHECK(!fi_cq_open(side->domain, &attr, &side->completions, NULL));
    CHECK((side->memory = calloc(1, BYTES)));
    CHECK(!fi_mr_reg(side->domain, side->memory, BYTES,
                     FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &side->region, NULL));
    CHECK(!fi_endpoint(side->domain, info, &side->endpoint, NULL));
    CHECK(!fi_ep_bind(side->endpoint, &side->events->fid, 0));
    CHECK(!fi_ep_bind(side->endpoint, &side->completions->fid, FI_TRANSMIT | FI_RECV));
    CHECK(!fi_enable(side->endpoint));
}

static void open_events(struct side *side) {
    struct fi_eq_attr attr = {.size = 16, .wait_obj = FI_WAIT_UNSPEC};
    CHECK(!fi_fabric(side->info->fabric_attr, &side->fabric, NULL));
    CHECK(!fi_eq_open(side->fabric, &attr, &side->events, NULL));
}

/* Waits for this event. Returns the bytes of private data that came with it. */
static size_t wait_event(struct side *side, uint32_t wanted, struct fi_eq_cm_entry *entry, size_t capacity) {
    uint32_t event = 0;
    ssize_t length;
    do {
        length = fi_eq_sread(side->events, &event, entry, capacity, -1, 0);
    } while (length == -FI_EAGAIN || length == -FI_EINTR);
    CHECK(length >= (ssize_t)sizeof *entry && event == wanted);
    return length - sizeof *entry;
}

static void wait_completion(struct side *side) {
    struct fi_cq_entry entry;
    ssize_t count;
    while ((count = fi_cq_read(side->completions, &entry, 1)) == -FI_EAGAIN) {
    }
    CHECK(count == 1);
}

static char byte_at(size_t at) { return (char)(at * 7 + at / 4096); }

static void end(struct side *side) {
    CHECK(!fi_close(&side->endpoint->fid) && !fi_close(&side->region->fid));
    CHECK(!fi_close(&side->completions->fid) && !fi_close(&side->domain->fid));
    CHECK(!fi_close(&side->events->fid) && !fi_close(&side->fabric->fid));
    fi_freeinfo(side->info);
    free(side->memory);
}

static void serve(const char *port) {
    struct side side = {.info = find(NULL, port, FI_SOURCE)};
    struct fid_pep *listener;
    struct fi_eq_cm_entry entry;
    open_events(&side);
    CHECK(!fi_passive_ep(side.fabric, side.info, &listener, NULL));
    CHECK(!fi_pep_bind(listener, &side.events->fid, 0) && !fi_listen(listener));
    puts("listening");
    fflush(stdout);
    wait_event(&side, FI_CONNREQ, &entry, sizeof entry);
    prepare(&side, entry.info);
    struct target target = {.address = (uintptr_t)side.memory, .key = fi_mr_key(side.region)};
    CHECK(!fi_accept(side.endpoint, &target, sizeof target));
    fi_freeinfo(entry.info);
    wait_event(&side, FI_CONNECTED, &entry, sizeof entry);
    wait_event(&side, FI_SHUTDOWN, &entry, sizeof entry);
    for (size_t at = 0; at < BYTES; at++) CHECK(side.memory[at] == byte_at(at));
    CHECK(!fi_close(&listener->fid));
    end(&side);
    puts("served");
}

static void use(const char *address, const char *port) {
    struct side side = {.info = find(address, port, 0)};
    struct {
        struct fi_eq_cm_entry entry;
        struct target target;
        char rest[256];
    } told;
    open_events(&side);
    prepare(&side, side.info);
    CHECK(!fi_connect(side.endpoint, side.info->dest_addr, NULL, 0));
    CHECK(wait_event(&side, FI_CONNECTED, &told.entry, sizeof told) >= sizeof told.target);
    uint64_t to = told.target.address, key = told.target.key;
    void *own = fi_mr_desc(side.region);
    for (size_t at = 0; at < BYTES; at++) side.memory[at] = byte_at(at);
    CHECK(!fi_write(side.endpoint, side.memory, BYTES, own, 0, to, key, NULL));
    wait_completion(&side);
    memset(side.memory, 0, BYTES);
    CHECK(!fi_read(side.endpoint, side.memory, BYTES, own, 0, to, key, NULL));
    wait_completion(&side);
    for (size_t at = 0; at < BYTES; at++) CHECK(side.memory[at] == byte_at(at));
    CHECK(!fi_shutdown(side.endpoint, 0));
    end(&side);
    puts("written and read");
}

int main(int argc, char **argv) {
    CHECK(argc == 2 || argc == 3);
    if (argc == 2) serve(argv[1]);
    else use(argv[2], argv[1]);
}
