/* A forked child inherits objects that stay its parent's, also when the child opens a device of its own.
 * Each use of them is EPERM, each end harmless. */
#include <errno.h>
#include <remora/prism.h>
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

struct nic {
    struct remora_context *context;
    struct remora_pd *pd;
    struct remora_cq *cq;
    struct remora_mr *mr;
    struct remora_qp *one, *two;
};

static char bytes[8192] __attribute__((aligned(64)));

static struct nic open_nic(uint32_t port) {
    struct nic nic;
    struct remora_device_attr device = {port, 0, port == REMORA_PORT_UDP ? "127.0.0.1:0" : NULL, NULL, NULL};
    struct remora_qp_attr attr;
    WANT(0, remora_open(&device, &nic.context));
    WANT(0, remora_alloc_pd(nic.context, &nic.pd));
    WANT(0, remora_create_cq(nic.context, 64, &nic.cq));
    WANT(0, remora_reg_mr(nic.pd, bytes, sizeof bytes, 15, &nic.mr));
    WANT(0, remora_qp_attr_default(&attr));
    WANT(0, remora_create_qp(nic.pd, nic.cq, &attr, &nic.one));
    /* This one only answers. */
    attr.max_send_wr = attr.max_recv_wr = 0;
    WANT(0, remora_create_qp(nic.pd, nic.cq, &attr, &nic.two));
    WANT(0, remora_connect_pair(nic.one, nic.two));
    return nic;
}

static int write_one(struct nic *nic, struct remora_qp *qp) {
    struct remora_prism_wr wr;
    memset(&wr, 0, sizeof wr);
    struct remora_sge sge = {(uint64_t)(uintptr_t)bytes, 64, remora_lkey(nic->mr)};
    wr.opcode = REMORA_WRITE;
    wr.send_flags = REMORA_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.remote_addr = (uint64_t)(uintptr_t)bytes + 4096;
    wr.rkey = remora_rkey(nic->mr);
    return remora_post_prism(qp, &wr, NULL);
}

static void works(struct nic *nic) {
    struct remora_wc wc;
    WANT(0, write_one(nic, nic->one));
    WANT(1, remora_wait_cq(nic->cq, 1, &wc, 60000));
    WANT(0, wc.status);
    WANT(ENOMEM, write_one(nic, nic->two));
}

static void ends(struct nic *nic) {
    WANT(0, remora_destroy_qp(nic->one));
    WANT(0, remora_destroy_qp(nic->two));
    WANT(0, remora_dereg_mr(nic->mr));
    WANT(0, remora_destroy_cq(nic->cq));
    WANT(0, remora_dealloc_pd(nic->pd));
    WANT(0, remora_close(nic->context));
}

static void child(struct nic *parents, struct remora_listener *listener, uint32_t port) {
    struct nic own = open_nic(port);
    struct remora_wc wc;
    struct remora_cq *cq;
    struct remora_request *request;
    works(&own);
    WANT(EPERM, write_one(parents, parents->one));
    WANT(-EPERM, remora_poll_cq(parents->cq, 1, &wc));
    WANT(-EPERM, remora_wait_cq(parents->cq, 1, &wc, 60000));
    WANT(EPERM, remora_create_cq(parents->context, 64, &cq));
    WANT(EPERM, remora_connect(parents->one, "127.0.0.1:1"));
    WANT(EPERM, remora_get_request(listener, 60000, &request));
    WANT(1, strstr(remora_error(), "forked") != NULL);
    ends(parents);
    WANT(0, remora_close_listener(listener));
    works(&own);
    ends(&own);
}

int main(void) {
    uint32_t ports[] = {REMORA_PORT_SHM, REMORA_PORT_UDP};
    for (int at = 0; at < 2; at++) {
        struct nic nic = open_nic(ports[at]);
        struct remora_listener *listener;
        struct remora_request *request;
        WANT(0, remora_listen("127.0.0.1:0", &listener));
        works(&nic);
        pid_t pid = fork();
        if (pid == 0) {
            child(&nic, listener, ports[at]);
            _exit(0);
        }
        int status;
        WANT(pid, waitpid(pid, &status, 0));
        WANT(0, status);
        works(&nic);
        WANT(ETIMEDOUT, remora_get_request(listener, 1, &request));
        ends(&nic);
        WANT(0, remora_close_listener(listener));
    }
    puts("the child had none of its parent's");
    return 0;
}
