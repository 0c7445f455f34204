/* StRoM for C programs: requests to kernels on the peer's NIC, and kernels on the own NIC. It builds on
 * <remora/prism.h>, whose rules of errors, handles and threads hold here too. docs/reference/strom.md has the rules of
 * kernels, docs/guides/c.md is the tour.
 *
 * Both sides ask for it: REMORA_QP_STROM in the attributes of their queue pairs. */
#ifndef REMORA_STROM_H
#define REMORA_STROM_H

#include <remora/prism.h>

#ifdef __cplusplus
extern "C" {
#endif

struct remora_answers;
struct remora_kernel;

/* ---- requests (the paper's Listing 5) ---- */

/* Buffers for answers, 1 to 4096 of `size` bytes each. They are used in turn: the bytes of an answer stay
 * until as many requests were made as there are buffers. */
int remora_create_answers(struct remora_pd *pd, uint32_t count, uint32_t size, struct remora_answers **answers);
int remora_destroy_answers(struct remora_answers *answers);

/* Asks the kernel of the peer's NIC that serves `op`. The parameters are copied; with 16 bytes more they
 * must fit max_inline. *tag names the request. ENOMEM: the queue is full, or the next buffer's answer has
 * not been taken. EOPNOTSUPP: the peer did not agree. ENOTCONN. */
int remora_post_rpc(uint64_t op, struct remora_qp *qp, struct remora_answers *answers, const void *parameters,
                    uint32_t size, uint32_t *tag);
/* Sends registered memory to the kernel. The bytes must not change until the answer has arrived. The bytes of
 * the answer, if any, go to the buffer of the preceding remora_post_rpc. */
int remora_post_rpc_write(uint64_t op, struct remora_qp *qp, struct remora_answers *answers, const void *origin,
                          uint32_t size, uint32_t lkey, uint32_t *tag);

enum { /* values from 64 on are defined by the kernel */
    REMORA_KERNEL_DONE = 0,
    REMORA_KERNEL_MISS = 1,
    REMORA_KERNEL_NONE = 2, /* no kernel has this op-code */
    REMORA_KERNEL_BAD_PARAMS = 3,
    REMORA_KERNEL_ACCESS = 4, /* an address points to memory that the kernel may not access */
    REMORA_KERNEL_TOO_LONG = 5,
    REMORA_KERNEL_NO_ROOM = 6, /* the answer is longer than its buffer */
    REMORA_KERNEL_INCONSISTENT = 7,
    REMORA_KERNEL_REMOVED = 8,
    REMORA_KERNEL_FAILED = 9
};

struct remora_answer {
    uint32_t tag;
    uint32_t status; /* REMORA_KERNEL_* */
    uint32_t length; /* bytes of the answer */
};

/* Polls until the answer to a request has come, and takes it. Earlier answers are kept, other completions of
 * the queue are dropped. Up to `capacity` bytes of the answer are copied to `bytes`. ETIMEDOUT; EIO: the
 * connection has ended. */
int remora_wait_answer(struct remora_answers *answers, struct remora_cq *cq, uint32_t tag, uint32_t timeout_ms,
                       struct remora_answer *answer, void *bytes, size_t capacity);

/* ---- kernels of the own NIC: docs/reference/strom.md has the parameters of each ---- */

enum {
    REMORA_GET_KERNEL = 0,
    REMORA_TRAVERSAL_KERNEL = 1,
    REMORA_CONSISTENCY_KERNEL = 2,
    REMORA_SHUFFLE_KERNEL = 3,
    REMORA_HYPERLOGLOG_KERNEL = 4,
    REMORA_FILTER_KERNEL = 5,
    REMORA_AGGREGATE_KERNEL = 6
};

/* Deploys a kernel for queue pairs of the domain. It serves `lanes` of them at a time (1 to 1024), with
 * answers of `longest` bytes at most. It may read `mr`, and write it if it allows local writing. EBUSY: the
 * op-code is taken. ENOMEM: the limit of kernels is reached. */
int remora_deploy_kernel(struct remora_pd *pd, uint32_t kernel, uint64_t op, struct remora_mr *mr, uint32_t lanes,
                         uint32_t longest, struct remora_kernel **handle);
/* Removes it: requests that it had begun end with REMORA_KERNEL_REMOVED. */
int remora_remove_kernel(struct remora_kernel *kernel);

/* The check value of an object for the consistency kernel: CRC-64/NVME. */
uint64_t remora_crc64(const void *bytes, size_t length);

#ifdef __cplusplus
}
#endif

#endif
