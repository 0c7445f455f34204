/* A client is killed while a child of it lives on with all that it inherited. The server sees the disconnect, and
   what it still sends ends by retries. */
#include "sides.h"
#include <signal.h>
#include <sys/wait.h>

static void client(uint16_t port, int out) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_id *id = routed(channel, RDMA_PS_TCP, port);
    make_qp(id);
    /* The server need not wait long for who is dead. */
    struct rdma_conn_param param = {.retry_count = 1, .rnr_retry_count = 7};
    CHECK(!rdma_connect(id, &param));
    passes(channel, RDMA_CM_EVENT_ESTABLISHED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        child = getpid();
        CHECK(write(out, &child, sizeof child) == sizeof child);
        for (;;) pause();
    }
    for (;;) pause();
}

int main(void) {
    int ports[2], children[2], status;
    uint16_t port;
    CHECK(!pipe(ports) && !pipe(children));
    pid_t driver = fork(), child;
    CHECK(driver >= 0);
    if (driver == 0) {
        CHECK(read(ports[0], &port, sizeof port) == sizeof port);
        client(port, children[1]);
    }
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    struct rdma_cm_id *listens = listener(channel, RDMA_PS_TCP);
    port = ntohs(rdma_get_src_port(listens));
    CHECK(write(ports[1], &port, sizeof port) == sizeof port);
    struct rdma_cm_event *event = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    CHECK(!rdma_ack_cm_event(event));
    make_qp(id);
    CHECK(!rdma_accept(id, NULL));
    passes(channel, RDMA_CM_EVENT_ESTABLISHED);
    CHECK(read(children[0], &child, sizeof child) == sizeof child);
    CHECK(!kill(driver, SIGKILL) && waitpid(driver, &status, 0) == driver && WIFSIGNALED(status));
    passes(channel, RDMA_CM_EVENT_DISCONNECTED);
    CHECK(!kill(child, 0));
    CHECK(!rdma_post_send(id, NULL, NULL, 0, NULL, IBV_SEND_SIGNALED));
    struct ibv_wc wc;
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_RETRY_EXC_ERR);
    CHECK(!kill(child, SIGKILL));
    CHECK(!rdma_disconnect(id));
    rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(listens));
    rdma_destroy_event_channel(channel);
    puts("told");
}
