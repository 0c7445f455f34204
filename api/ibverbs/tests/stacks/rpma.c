/* librpma: a client writes into a server's memory, flushes, and reads it back.
 *
 *   rpma OWN PORT               serves one client at its own address
 *   rpma OWN PORT ADDRESS       is the client
 */
#include "../c/check.h"
#include <librpma.h>
#include <stdint.h>

enum { BYTES = 1 << 16 };

static struct rpma_peer *open_peer(const char *own) {
    struct ibv_context *context;
    struct rpma_peer *peer;
    CHECK(!rpma_utils_get_ibv_context(own, RPMA_UTIL_IBV_CONTEXT_LOCAL, &context));
    CHECK(!rpma_peer_new(context, &peer));
    return peer;
}

static void expect(struct rpma_conn *conn, enum rpma_conn_event wanted) {
    enum rpma_conn_event event;
    CHECK(!rpma_conn_next_event(conn, &event) && event == wanted);
}

static char byte_at(size_t at) { return (char)(at * 11 + at / 256); }

static void wait_completion(struct rpma_conn *conn, enum ibv_wc_opcode wanted) {
    struct rpma_cq *cq;
    struct ibv_wc wc;
    int count;
    CHECK(!rpma_conn_get_cq(conn, &cq) && !rpma_cq_wait(cq));
    CHECK(!rpma_cq_get_wc(cq, 1, &wc, &count) && count == 1);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == wanted);
}

static void serve(struct rpma_peer *peer, const char *own, const char *port, char *memory) {
    struct rpma_mr_local *region;
    struct rpma_ep *listener;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    char descriptor[256];
    size_t length;
    int usage = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY;
    CHECK(!rpma_mr_reg(peer, memory, BYTES, usage, &region));
    CHECK(!rpma_mr_get_descriptor_size(region, &length) && length < sizeof descriptor);
    CHECK(!rpma_mr_get_descriptor(region, descriptor));
    struct rpma_conn_private_data told = {.ptr = descriptor, .len = (uint8_t)length};
    CHECK(!rpma_ep_listen(peer, own, port, &listener));
    CHECK(!rpma_ep_next_conn_req(listener, NULL, &request));
    CHECK(!rpma_conn_req_connect(&request, &told, &conn));
    expect(conn, RPMA_CONN_ESTABLISHED);
    expect(conn, RPMA_CONN_CLOSED);
    for (size_t at = 0; at < BYTES; at++) CHECK(memory[at] == byte_at(at));
    CHECK(!rpma_conn_disconnect(conn) && !rpma_conn_delete(&conn));
    CHECK(!rpma_ep_shutdown(&listener) && !rpma_mr_dereg(&region));
}

static void use(struct rpma_peer *peer, const char *address, const char *port, char *memory) {
    struct rpma_mr_local *region;
    struct rpma_mr_remote *target;
    struct rpma_conn_req *request;
    struct rpma_conn *conn;
    struct rpma_conn_private_data told;
    int usage = RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_READ_DST;
    CHECK(!rpma_mr_reg(peer, memory, BYTES, usage, &region));
    CHECK(!rpma_conn_req_new(peer, address, port, NULL, &request) && !rpma_conn_req_connect(&request, NULL, &conn));
    expect(conn, RPMA_CONN_ESTABLISHED);
    CHECK(!rpma_conn_get_private_data(conn, &told) && told.ptr);
    CHECK(!rpma_mr_remote_from_descriptor(told.ptr, told.len, &target));
    for (size_t at = 0; at < BYTES; at++) memory[at] = byte_at(at);
    CHECK(!rpma_write(conn, target, 0, region, 0, BYTES, RPMA_F_COMPLETION_ON_ERROR, NULL));
    CHECK(!rpma_flush(conn, target, 0, BYTES, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, NULL));
    wait_completion(conn, IBV_WC_RDMA_READ);
    memset(memory, 0, BYTES);
    CHECK(!rpma_read(conn, region, 0, target, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, NULL));
    wait_completion(conn, IBV_WC_RDMA_READ);
    for (size_t at = 0; at < BYTES; at++) CHECK(memory[at] == byte_at(at));
    CHECK(!rpma_conn_disconnect(conn));
    expect(conn, RPMA_CONN_CLOSED);
    CHECK(!rpma_conn_delete(&conn) && !rpma_mr_remote_delete(&target) && !rpma_mr_dereg(&region));
}

int main(int argc, char **argv) {
    CHECK(argc == 3 || argc == 4);
    struct rpma_peer *peer = open_peer(argv[1]);
    char *memory = calloc(1, BYTES);
    CHECK(memory);
    if (argc == 3) serve(peer, argv[1], argv[2], memory);
    else use(peer, argv[3], argv[2], memory);
    CHECK(!rpma_peer_delete(&peer));
    free(memory);
    puts("flushed");
}
