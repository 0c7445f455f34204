/* What no function takes: each mistake is an errno, and what was there goes on. */
#include <errno.h>
#include <remora/prism.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WANT(wanted, call)                                                                            \
    do {                                                                                              \
        long found = (long)(call);                                                                    \
        if (found != (long)(wanted)) {                                                                \
            fprintf(stderr, "line %d: %s is %ld (%s)\n", __LINE__, #call, found, remora_error());     \
            exit(1);                                                                                  \
        }                                                                                             \
    } while (0)

struct nic {
    struct remora_context *context;
    struct remora_pd *pd;
    struct remora_cq *cq;
};

static struct nic open_nic(void) {
    struct nic nic;
    struct remora_device_attr attr = {REMORA_PORT_SHM, 0, NULL, NULL, NULL};
    WANT(0, remora_open(&attr, &nic.context));
    WANT(0, remora_alloc_pd(nic.context, &nic.pd));
    WANT(0, remora_create_cq(nic.context, 64, &nic.cq));
    return nic;
}

static void devices(struct nic *nic) {
    struct remora_device_attr attr = {9, 0, NULL, NULL, NULL};
    struct remora_context *context;
    WANT(EINVAL, remora_open(&attr, &context));
    WANT(EINVAL, remora_open(NULL, &context));
    attr.port = REMORA_PORT_UDP;
    WANT(EINVAL, remora_open(&attr, NULL));
    attr.address = "nowhere";
    WANT(ENODEV, remora_open(&attr, &context));
    WANT(1, strlen(remora_error()) > 0);
    WANT(EINVAL, remora_alloc_pd(NULL, &nic->pd));
    WANT(EINVAL, remora_alloc_pd((struct remora_context *)nic->pd, &nic->pd));
    WANT(EINVAL, remora_close(NULL));
    WANT(EINVAL, remora_destroy_cq((struct remora_cq *)nic->pd));
    struct remora_cq *cq;
    WANT(EINVAL, remora_create_cq(nic->context, UINT32_MAX, &cq));
    struct remora_wc wc;
    WANT(-EINVAL, remora_poll_cq(NULL, 1, &wc));
    WANT(-EINVAL, remora_poll_cq(nic->cq, 1, NULL));
    WANT(-EINVAL, remora_poll_cq(nic->cq, -1, &wc));
    WANT(-ETIMEDOUT, remora_wait_cq(nic->cq, 1, &wc, 1));
}

static void memory(struct nic *nic, void *bytes, struct remora_mr **mr) {
    WANT(EINVAL, remora_reg_mr(nic->pd, NULL, 64, 0, mr));
    WANT(EINVAL, remora_reg_mr(nic->pd, bytes, 0, 0, mr));
    /* As Rust says it (`MemoryError::Invalid`), and nothing of memory that is short. */
    WANT(1, strstr(remora_error(), "a region has at least one byte") != NULL);
    WANT(EINVAL, remora_reg_mr(nic->pd, bytes, SIZE_MAX, 0, mr));
    WANT(EINVAL, remora_reg_mr(nic->pd, bytes, 64, REMORA_ACCESS_REMOTE_WRITE, mr));
    WANT(EINVAL, remora_reg_mr(nic->pd, bytes, 64, 0x40000000, mr));
    WANT(0, remora_reg_mr(nic->pd, bytes, 8192, 15, mr));
    WANT(0, remora_lkey(NULL));
    struct remora_free_list *list;
    uint64_t number;
    uint32_t index;
    WANT(EINVAL, remora_create_free_list(nic->pd, *mr, 4096, 1024, 5, &list));
    WANT(EINVAL, remora_create_free_list(nic->pd, *mr, 4096, 0, 4, &list));
    WANT(1, strstr(remora_error(), "size of 0") != NULL);
    WANT(EINVAL, remora_create_free_list(nic->pd, NULL, 4096, 1024, 4, &list));
    WANT(0, remora_create_free_list(nic->pd, *mr, 4096, 1024, 4, &list));
    WANT(EINVAL, remora_free_list_post(list, 4));
    WANT(EINVAL, remora_free_list_number(list, NULL));
    WANT(EINVAL, remora_free_list_number(NULL, &number));
    WANT(EINVAL, remora_free_list_address(list, 4, &number));
    WANT(0, remora_free_list_address(list, 3, &number));
    WANT(EINVAL, remora_free_list_index(list, number + 1024, &index));
    WANT(EINVAL, remora_free_list_index(list, number + 1, &index));
    WANT(0, remora_destroy_free_list(list));
}

/* Two connected queue pairs that agree on `flags`. */
static void connected(struct nic *nic, uint32_t flags, struct remora_qp **one, struct remora_qp **two) {
    struct remora_qp_attr attr;
    WANT(0, remora_qp_attr_default(&attr));
    attr.flags = flags;
    attr.max_send_wr = 16;
    attr.max_inline = 64;
    WANT(0, remora_create_qp(nic->pd, nic->cq, &attr, one));
    WANT(0, remora_create_qp(nic->pd, nic->cq, &attr, two));
    WANT(0, remora_connect_pair(*one, *two));
    WANT(flags, remora_agreed(*one));
}

static void queue_pairs(struct nic *nic, struct nic *other) {
    struct remora_qp_attr attr;
    struct remora_qp *qp, *peer;
    struct remora_prism_wr wr;
    memset(&wr, 0, sizeof wr);
    WANT(EINVAL, remora_qp_attr_default(NULL));
    WANT(0, remora_qp_attr_default(&attr));
    WANT(EINVAL, remora_create_qp(nic->pd, other->cq, &attr, &qp));
    attr.private_len = 257;
    WANT(EINVAL, remora_create_qp(nic->pd, nic->cq, &attr, &qp));
    attr.private_len = 8;
    WANT(EINVAL, remora_create_qp(nic->pd, nic->cq, &attr, &qp));
    attr.private_len = 0;
    attr.max_send_sge = 31;
    WANT(EINVAL, remora_create_qp(nic->pd, nic->cq, &attr, &qp));
    attr.max_send_sge = 1;
    attr.flags = 16;
    WANT(EINVAL, remora_create_qp(nic->pd, nic->cq, &attr, &qp));
    attr.flags = REMORA_QP_PRISM;
    WANT(0, remora_create_qp(nic->pd, nic->cq, &attr, &qp));
    WANT(ENOTCONN, remora_post_prism(qp, &wr, NULL));
    WANT(-ENOTCONN, remora_peer_data(qp, NULL, 0));
    WANT(EINVAL, remora_connect_pair(qp, qp));
    WANT(EINVAL, remora_connect(qp, NULL));
    WANT(ECONNREFUSED, remora_connect(qp, "127.0.0.1:1"));
    WANT(EISCONN, remora_connect(qp, "127.0.0.1:1"));
    WANT(0, remora_destroy_qp(qp));
    connected(nic, 0, &qp, &peer);
    WANT(EISCONN, remora_connect_pair(qp, peer));
    wr.opcode = REMORA_ALLOCATE;
    WANT(EOPNOTSUPP, remora_post_prism(qp, &wr, NULL));
    WANT(0, remora_destroy_qp(qp));
    WANT(0, remora_destroy_qp(peer));
}

static void requests(struct nic *nic, void *bytes, struct remora_mr *mr) {
    struct remora_qp *qp, *peer;
    connected(nic, REMORA_QP_PRISM, &qp, &peer);
    struct remora_sge sge = {(uint64_t)(uintptr_t)bytes, 65, remora_lkey(mr)};
    struct remora_prism_wr good, wr, *bad = NULL;
    memset(&good, 0, sizeof good);
    good.opcode = REMORA_WRITE;
    good.send_flags = REMORA_SEND_SIGNALED;
    good.remote_addr = (uint64_t)(uintptr_t)bytes + 4096;
    good.rkey = remora_rkey(mr);
    good.sg_list = &sge;
    good.num_sge = 1;
#define REFUSED(errno_, change)                               \
    do {                                                      \
        wr = good;                                            \
        change;                                               \
        WANT(errno_, remora_post_prism(qp, &wr, &bad));       \
        WANT(1, bad == &wr);                                  \
    } while (0)
    WANT(EINVAL, remora_post_prism(qp, NULL, NULL));
    WANT(EINVAL, remora_post_prism(NULL, &good, NULL));
    WANT(EINVAL, remora_post_prism((struct remora_qp *)nic->cq, &good, NULL));
    REFUSED(EINVAL, wr.opcode = 5);
    REFUSED(EINVAL, wr.send_flags = 8);
    REFUSED(EINVAL, wr.prism_flags = 0x80);
    REFUSED(EINVAL, wr.prism_flags = REMORA_ADDR_BOUNDED);
    REFUSED(EINVAL, wr.prism_flags = REMORA_REDIRECT);
    REFUSED(EINVAL, wr.prism_flags = REMORA_DATA_INDIRECT);
    REFUSED(EINVAL, wr.send_flags = REMORA_SEND_INLINE);
    REFUSED(EINVAL, (wr.opcode = REMORA_READ, wr.send_flags = REMORA_SEND_INLINE));
    REFUSED(EINVAL, wr.sg_list = NULL);
    REFUSED(EINVAL, wr.num_sge = 31);
    REFUSED(EINVAL, wr.num_sge = UINT32_MAX);
    REFUSED(EINVAL, (wr.opcode = REMORA_COMPARE_SWAP, wr.num_sge = 0, wr.atomic.size = 12));
    REFUSED(EINVAL, (wr.opcode = REMORA_COMPARE_SWAP, wr.num_sge = 0, wr.atomic.size = 8, wr.atomic.mode = 6));
    REFUSED(EINVAL, (wr.opcode = REMORA_FETCH_ADD, wr.num_sge = 0, wr.atomic.size = 8, wr.atomic.mode = 1));
    /* What is good before the bad one is posted. Its id has 64 bits. */
    struct remora_wc wc;
    good.wr_id = UINT64_C(0xfedcba9876543210);
    wr = good;
    wr.opcode = 5;
    good.next = &wr;
    WANT(EINVAL, remora_post_prism(qp, &good, &bad));
    WANT(1, bad == &wr);
    WANT(1, remora_wait_cq(nic->cq, 1, &wc, 60000));
    WANT(1, wc.wr_id == good.wr_id);
    WANT(0, wc.status);
    /* A queue that is full says so, and goes on. */
    good.next = NULL;
    good.send_flags = 0;
    static struct remora_prism_wr many[64];
    for (int at = 0; at < 64; at++) {
        many[at] = good;
        many[at].next = at < 63 ? &many[at + 1] : NULL;
    }
    WANT(ENOMEM, remora_post_prism(qp, many, &bad));
    WANT(1, bad > many && bad < many + 64);
    /* A key that is none ends the queue pair with a status, not the program. */
    good.rkey ^= 0x5555;
    good.send_flags = REMORA_SEND_SIGNALED;
    while (remora_post_prism(qp, &good, NULL) == ENOMEM) WANT(0, remora_poll_cq(nic->cq, 1, &wc));
    WANT(1, remora_wait_cq(nic->cq, 1, &wc, 60000));
    WANT(10, wc.status);
    WANT(0, remora_destroy_qp(qp));
    WANT(0, remora_destroy_qp(peer));
}

static void listeners(void) {
    struct remora_listener *listener;
    struct remora_request *request;
    WANT(EINVAL, remora_listen(NULL, &listener));
    WANT(EINVAL, remora_listen("127.0.0.1:0", NULL));
    WANT(0, remora_listen("127.0.0.1:0", &listener));
    WANT(1, remora_listener_port(listener) != 0);
    WANT(0, remora_listener_port(NULL));
    WANT(ETIMEDOUT, remora_get_request(listener, 1, &request));
    WANT(EINVAL, remora_accept(NULL, NULL));
    WANT(EINVAL, remora_reject(NULL, "no"));
    WANT(0, remora_close_listener(listener));
}

int main(void) {
    struct nic nic = open_nic(), other = open_nic();
    void *bytes = aligned_alloc(4096, 8192);
    struct remora_mr *mr;
    devices(&nic);
    memory(&nic, bytes, &mr);
    queue_pairs(&nic, &other);
    requests(&nic, bytes, mr);
    listeners();
    /* Handles may go in any order. */
    WANT(0, remora_close(nic.context));
    WANT(0, remora_dealloc_pd(nic.pd));
    WANT(0, remora_dereg_mr(mr));
    WANT(0, remora_destroy_cq(nic.cq));
    free(bytes);
    puts("every mistake was an errno");
    return 0;
}
