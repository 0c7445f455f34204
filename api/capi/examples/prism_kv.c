/* PRISM-KV's operations from C. A server has a table of slots (pointer, bound) and buffers on a free list,
 * and then only waits; a client puts values by one chain each, WRITE bound, ALLOCATE, compare-and-swap, and
 * gets them by one bounded READ.
 *
 * prism_kv serve udp 127.0.0.1:0        prints the port of its listener, and ends when its input does
 * prism_kv client udp 127.0.0.1:PORT    (or shm in place of udp) */
#include <remora/prism.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 16, BUFFERS = 8, SIZE = 8192, TABLE = 4096 };

struct server_data { /* by the server, when a client connects */
    uint64_t table, list;
    uint32_t rkey, unused;
};

static void must(int error, const char *what) {
    if (error != 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, remora_error(), strerror(error));
        exit(1);
    }
}

struct nic {
    struct remora_context *context;
    struct remora_pd *pd;
    struct remora_cq *cq;
    struct remora_mr *mr;
    unsigned char *memory;
    size_t length;
};

static struct nic open_nic(const char *port, const char *address, size_t length) {
    struct nic nic = {0};
    struct remora_device_attr attr = {0};
    attr.port = strcmp(port, "udp") == 0 ? REMORA_PORT_UDP : REMORA_PORT_SHM;
    attr.address = attr.port == REMORA_PORT_UDP ? address : NULL;
    must(remora_open(&attr, &nic.context), "open");
    must(remora_alloc_pd(nic.context, &nic.pd), "domain");
    must(remora_create_cq(nic.context, 64, &nic.cq), "completion queue");
    nic.length = length;
    nic.memory = aligned_alloc(4096, length);
    if (nic.memory == NULL) exit(1);
    memset(nic.memory, 0, length);
    uint32_t access = REMORA_ACCESS_LOCAL_WRITE | REMORA_ACCESS_REMOTE_WRITE | REMORA_ACCESS_REMOTE_READ | REMORA_ACCESS_REMOTE_ATOMIC;
    must(remora_reg_mr(nic.pd, nic.memory, length, access, &nic.mr), "region");
    return nic;
}

static void close_nic(struct nic *nic) {
    must(remora_dereg_mr(nic->mr), "deregister");
    free(nic->memory);
    must(remora_destroy_cq(nic->cq), "completion queue");
    must(remora_dealloc_pd(nic->pd), "domain");
    must(remora_close(nic->context), "close");
}

static int serve(const char *port, const char *address) {
    struct nic nic = open_nic(port, "127.0.0.1:0", TABLE + BUFFERS * SIZE);
    struct remora_free_list *list;
    must(remora_create_free_list(nic.pd, nic.mr, TABLE, SIZE, BUFFERS, &list), "free list");
    for (uint32_t index = 0; index < BUFFERS; index++) must(remora_free_list_post(list, index), "post");

    struct remora_listener *listener;
    must(remora_listen(address, &listener), "listen");
    printf("%u\n", (unsigned)remora_listener_port(listener));
    fflush(stdout);
    struct remora_request *request;
    must(remora_get_request(listener, 60000, &request), "client");
    struct server_data server_data = {(uint64_t)(uintptr_t)nic.memory, 0, remora_rkey(nic.mr), 0};
    must(remora_free_list_number(list, &server_data.list), "number");
    struct remora_qp_attr attr;
    must(remora_qp_attr_default(&attr), "attributes");
    attr.private_data = &server_data;
    attr.private_len = sizeof server_data;
    struct remora_qp *qp;
    must(remora_create_qp(nic.pd, nic.cq, &attr, &qp), "queue pair");
    must(remora_accept(request, qp), "accept");

    while (getchar() != EOF) {} /* the NIC serves */
    must(remora_destroy_qp(qp), "queue pair");
    /* What is in no slot comes back: values that were replaced, and those of clients that lost. */
    uint64_t out = 0;
    must(remora_free_list_out(list, 0, &out, 1), "out");
    for (int slot = 0; slot < SLOTS; slot++) {
        uint64_t address_of;
        uint32_t index;
        memcpy(&address_of, nic.memory + 16 * slot, sizeof address_of);
        if (remora_free_list_index(list, address_of, &index) == 0) out &= ~(UINT64_C(1) << index);
    }
    for (uint32_t index = 0; index < BUFFERS; index++)
        if (out >> index & 1) must(remora_free_list_post(list, index), "post");
    struct remora_free_list_facts facts;
    must(remora_free_list_query(list, &facts), "facts");
    printf("%u of %u free\n", facts.free + facts.resting, facts.capacity);
    must(remora_destroy_free_list(list), "free list");
    must(remora_close_listener(listener), "listener");
    close_nic(&nic);
    return 0;
}

struct client {
    struct nic nic;
    struct remora_qp *qp;
    struct server_data server_data;
};

/* Posts a list and waits for each completion. */
static void run(struct client *client, struct remora_prism_wr *first, int count, struct remora_wc *wc) {
    must(remora_post_prism(client->qp, first, NULL), "post");
    for (int came = 0; came < count;) {
        int more = remora_wait_cq(client->nic.cq, count - came, wc + came, 60000);
        must(more < 0 ? -more : 0, "completions");
        came += more;
    }
    for (int at = 0; at < count; at++)
        if (wc[at].status != 0) {
            fprintf(stderr, "operation %d ended with status %u\n", (int)wc[at].wr_id, wc[at].status);
            exit(1);
        }
}

static struct remora_prism_wr operation(const struct client *client, uint64_t id, uint32_t opcode, uint64_t at) {
    struct remora_prism_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.wr_id = id;
    wr.opcode = opcode;
    wr.send_flags = REMORA_SEND_SIGNALED;
    wr.remote_addr = at;
    wr.rkey = client->server_data.rkey;
    return wr;
}

/* Puts a value where `old` is expected: the outcome of the swap. The slot as it was stands in memory at
 * SIZE. */
static uint32_t put(struct client *client, int slot, uint64_t old, const char *value, uint32_t length) {
    uint32_t lkey = remora_lkey(client->nic.mr);
    uint64_t base = (uint64_t)(uintptr_t)client->nic.memory, bound = length;
    memcpy(client->nic.memory, value, length);
    struct remora_sge bound_sge = {(uint64_t)(uintptr_t)&bound, sizeof bound, 0}, value_sge = {base, length, lkey};

    struct remora_prism_wr write = operation(client, 1, REMORA_WRITE, REMORA_SCRATCH + 8);
    write.send_flags |= REMORA_SEND_INLINE;
    write.sg_list = &bound_sge;
    write.num_sge = 1;
    struct remora_prism_wr allocate = operation(client, 2, REMORA_ALLOCATE, client->server_data.list);
    allocate.prism_flags = REMORA_REDIRECT;
    allocate.redirect_addr = REMORA_SCRATCH;
    allocate.sg_list = &value_sge;
    allocate.num_sge = 1;
    struct remora_prism_wr swap = operation(client, 3, REMORA_COMPARE_SWAP, client->server_data.table + 16 * (uint64_t)slot);
    swap.prism_flags = REMORA_CONDITIONAL | REMORA_SWAP_INDIRECT;
    swap.atomic.mode = REMORA_EQUAL;
    swap.atomic.size = 16;
    swap.atomic.compare_mask[0] = UINT64_MAX;
    swap.atomic.swap_mask[0] = swap.atomic.swap_mask[1] = UINT64_MAX;
    swap.atomic.compare[0] = old;
    swap.atomic.swap_add[0] = REMORA_SCRATCH;
    swap.result = (struct remora_sge){base + SIZE, 16, lkey};
    write.next = &allocate;
    allocate.next = &swap;
    struct remora_wc wc[3];
    run(client, &write, 3, wc);
    return wc[2].outcome;
}

/* Gets a value into memory at 0: its length. */
static uint32_t get(struct client *client, int slot) {
    struct remora_sge into = {(uint64_t)(uintptr_t)client->nic.memory, SIZE, remora_lkey(client->nic.mr)};
    struct remora_prism_wr read = operation(client, 4, REMORA_READ, client->server_data.table + 16 * (uint64_t)slot);
    read.prism_flags = REMORA_ADDR_INDIRECT | REMORA_ADDR_BOUNDED;
    read.sg_list = &into;
    read.num_sge = 1;
    struct remora_wc wc;
    run(client, &read, 1, &wc);
    return wc.byte_len;
}

static int client(const char *port, const char *address) {
    struct client client = {open_nic(port, "127.0.0.1:0", 2 * SIZE), NULL, {0, 0, 0, 0}};
    struct remora_qp_attr attr;
    must(remora_qp_attr_default(&attr), "attributes");
    must(remora_create_qp(client.nic.pd, client.nic.cq, &attr, &client.qp), "queue pair");
    must(remora_connect(client.qp, address), "connect");
    if (remora_agreed(client.qp) != REMORA_QP_PRISM) return 1;
    if (remora_peer_data(client.qp, &client.server_data, sizeof client.server_data) != sizeof client.server_data) return 1;

    static char value[SIZE];
    uint64_t current = 0;
    for (int round = 1; round <= 4; round++) {
        uint32_t length = (uint32_t)(round * 1999);
        memset(value, 'a' + round, length);
        uint32_t won = put(&client, 3, current, value, length);
        uint32_t lost = put(&client, 3, 1, "too late", 8);
        memcpy(&current, client.nic.memory + SIZE, sizeof current); /* what the loser found */
        uint32_t got = get(&client, 3);
        int same = got == length && memcmp(client.nic.memory, value, length) == 0;
        printf("put %u, late put %u, got %u bytes%s\n", won, lost, got, same ? "" : " of another value");
        if (!same) return 1;
    }
    must(remora_destroy_qp(client.qp), "queue pair");
    close_nic(&client.nic);
    return 0;
}

int main(int count, char **words) {
    if (count == 4 && strcmp(words[1], "serve") == 0) return serve(words[2], words[3]);
    if (count == 4 && strcmp(words[1], "client") == 0) return client(words[2], words[3]);
    fprintf(stderr, "prism_kv serve|client shm|udp ADDRESS:PORT\n");
    return 2;
}
