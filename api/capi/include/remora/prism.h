/* PRISM for C programs: one-sided operations with pointers, allocation, wide compare-and-swap and chains,
 * over RoCE v2 in software. Link with libremora (pkg-config remora). docs/guides/c.md is an introduction,
 * docs/reference/prism.md specifies the operations.
 *
 * Functions return 0 or a positive errno, unless their comment names another result; remora_error() has the
 * text. Handles are opaque. NULL, a handle of another kind, and objects of another context are EINVAL; a
 * destroyed handle may be used no more. Handles may be destroyed in any order: an object keeps the objects
 * alive that it needs. Every function may be called by any thread. Numbers are in the machine's byte order,
 * lengths in bytes. Strings are UTF-8. */
#ifndef REMORA_PRISM_H
#define REMORA_PRISM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct remora_context;
struct remora_pd;
struct remora_mr;
struct remora_cq;
struct remora_qp;
struct remora_listener;
struct remora_request;
struct remora_free_list;

/* Returns one line that describes the last failure of this thread. It is valid until the thread's next call. */
const char *remora_error(void);

/* ---- device, memory, completion queues ---- */

enum { REMORA_PORT_SHM = 0, REMORA_PORT_UDP = 1, REMORA_PORT_XDP = 2 };

struct remora_device_attr {
    uint32_t port;         /* REMORA_PORT_* */
    uint32_t dedicated;    /* 1: a thread drives the NIC; 0: the threads that post and poll drive it */
    const char *address;   /* udp: "address:port", port 0: any; shm, xdp: own IP address; NULL: default */
    const char *interface; /* xdp: name of the Ethernet interface; else NULL */
    const char *capture;   /* pcapng file that records everything, or NULL */
};

/* Opens a device. ENODEV: the port cannot be opened; remora_error() has the reason. */
int remora_open(const struct remora_device_attr *attr, struct remora_context **context);
int remora_close(struct remora_context *context);

int remora_alloc_pd(struct remora_context *context, struct remora_pd **pd);
int remora_dealloc_pd(struct remora_pd *pd);

enum { /* as IBV_ACCESS_* */
    REMORA_ACCESS_LOCAL_WRITE = 1,
    REMORA_ACCESS_REMOTE_WRITE = 2,
    REMORA_ACCESS_REMOTE_READ = 4,
    REMORA_ACCESS_REMOTE_ATOMIC = 8
};

/* Registers memory of the program, which must stay mapped until the region is gone. Remote write and atomic
 * need local write. ENOMEM: the limit of regions is reached. Peers name the region by its address and rkey. */
int remora_reg_mr(struct remora_pd *pd, void *addr, size_t length, uint32_t access, struct remora_mr **mr);
int remora_dereg_mr(struct remora_mr *mr);
uint32_t remora_lkey(const struct remora_mr *mr); /* 0: no region */
uint32_t remora_rkey(const struct remora_mr *mr);

struct remora_wc {
    uint64_t wr_id;
    uint32_t status;     /* an ibv_wc_status: 2 not agreed on, 5 flushed, 9 invalid, 10 access, 12 retries */
    uint32_t opcode;     /* 1 WRITE or ALLOCATE, 2 READ, 3 compare and swap, 4 fetch and add */
    uint32_t byte_len;   /* of a READ: number of bytes received */
    uint32_t qp_num;
    uint32_t outcome;    /* REMORA_OUTCOME_*, if status is 0 */
    uint32_t vendor_err; /* always 0 */
};

enum {
    REMORA_OUTCOME_DONE = 0,
    REMORA_OUTCOME_NOT_SWAPPED = 1,
    REMORA_OUTCOME_SKIPPED = 2,   /* not executed: it depended on an operation that did not succeed */
    REMORA_OUTCOME_NO_BUFFER = 3, /* the free list is empty */
    REMORA_OUTCOME_TOO_LONG = 4   /* the data is longer than the free list's buffers */
};

/* Creates a completion queue for at least `depth` completions (0: 256), up to 2^20. */
int remora_create_cq(struct remora_context *context, uint32_t depth, struct remora_cq **cq);
int remora_destroy_cq(struct remora_cq *cq);
/* Takes completions, at most 64 at a time; returns their number, or a negative errno. -EOVERFLOW: some are
 * lost. */
int remora_poll_cq(struct remora_cq *cq, int count, struct remora_wc *wc);
/* Polls until there is at least one completion; -ETIMEDOUT if there is none in time. */
int remora_wait_cq(struct remora_cq *cq, int count, struct remora_wc *wc, uint32_t timeout_ms);

/* ---- queue pairs ---- */

enum {
    REMORA_QP_SIGNAL_ALL = 1, /* every operation completes */
    REMORA_QP_PRISM = 2,      /* PRISM, if the peer asks for it too */
    REMORA_QP_IRN = 4,        /* IRN, if the peer asks for it too: only lost packets are retransmitted */
    REMORA_QP_STROM = 8       /* StRoM, if the peer asks for it too: <remora/strom.h> */
};

struct remora_qp_attr {
    uint32_t max_send_wr;        /* slots of outstanding requests; a PRISM request takes 2 to 16; 0: no sends */
    uint32_t max_send_sge;       /* 0 to 30 */
    uint32_t max_inline;         /* 0 to 960 */
    uint32_t path_mtu;           /* 256 to 4096 */
    uint32_t access;             /* the peer's rights, where the regions allow them: REMORA_ACCESS_* */
    uint32_t flags;              /* REMORA_QP_* */
    uint32_t connect_timeout_ms;
    uint32_t private_len;        /* 0 to 256 */
    const void *private_data;    /* for the peer's program; copied */
    uint8_t max_rd_atomic;       /* READs and operations of PRISM outstanding, 0 to 128 */
    uint8_t max_dest_rd_atomic;  /* the same of the peer, 0 to 128 */
    uint8_t timeout;             /* ACK timeout of 4.096 us * 2^timeout; 0: no timeout */
    uint8_t retry_cnt;           /* 0 to 7 */
    uint32_t max_recv_wr;        /* outstanding answers of kernels (<remora/strom.h>); 0: no requests */
};

/* Fills in the default attributes, with REMORA_QP_PRISM. Call it first, then change what differs. */
int remora_qp_attr_default(struct remora_qp_attr *attr);
int remora_create_qp(struct remora_pd *pd, struct remora_cq *cq, const struct remora_qp_attr *attr,
                     struct remora_qp **qp);
int remora_destroy_qp(struct remora_qp *qp);
uint32_t remora_qp_num(const struct remora_qp *qp); /* 0: none */
/* Returns the flags REMORA_QP_PRISM, REMORA_QP_IRN and REMORA_QP_STROM on which both ends agreed. */
uint32_t remora_agreed(const struct remora_qp *qp);

/* Connects over TCP to "host:port". A queue pair connects once (EISCONN); after a failure, destroy it.
 * EAGAIN: the server is full at the moment, and a later attempt may succeed. The TCP connection stays open
 * as long as the queue pair exists. When it closes, the server knows that the client is gone. */
int remora_connect(struct remora_qp *qp, const char *address);
int remora_connect_pair(struct remora_qp *first, struct remora_qp *second);
int remora_listen(const char *address, struct remora_listener **listener);
uint16_t remora_listener_port(const struct remora_listener *listener);
int remora_close_listener(struct remora_listener *listener);
/* Waits for the next client's request to connect; ETIMEDOUT if none arrives in time. */
int remora_get_request(struct remora_listener *listener, uint32_t timeout_ms, struct remora_request **request);
/* Accept or reject a request. Both consume the request, unless the result is EINVAL. */
int remora_accept(struct remora_request *request, struct remora_qp *qp);
int remora_reject(struct remora_request *request, const char *words);
/* Copies at most `capacity` bytes of the peer's private data. Returns its whole length, or a negative errno. */
int remora_request_data(const struct remora_request *request, void *out, size_t capacity);
int remora_peer_data(const struct remora_qp *qp, void *out, size_t capacity);

/* ---- free lists ---- */

struct remora_free_list_facts {
    uint32_t capacity;
    uint32_t free;
    uint32_t resting;   /* posted, but possibly still in use by an operation; free after that */
    uint32_t reserved;
    uint64_t bad_posts; /* posts of buffers that were free already */
};

/* Creates a list of `count` buffers of `size` bytes, from `offset` in the region on. A buffer is not
 * free until it is posted. EINVAL: the buffers do not lie in the region. */
int remora_create_free_list(struct remora_pd *pd, struct remora_mr *mr, size_t offset, uint32_t size,
                            uint32_t count, struct remora_free_list **list);
int remora_destroy_free_list(struct remora_free_list *list);
int remora_free_list_number(const struct remora_free_list *list, uint64_t *number);
int remora_free_list_address(const struct remora_free_list *list, uint32_t index, uint64_t *address);
int remora_free_list_index(const struct remora_free_list *list, uint64_t address, uint32_t *index);
int remora_free_list_post(struct remora_free_list *list, uint32_t index);
/* Writes a bitmap of the buffers that are neither free nor resting. Bit 0 of words[0] is buffer `first`. */
int remora_free_list_out(const struct remora_free_list *list, uint32_t first, uint64_t *words, size_t count);
int remora_free_list_query(const struct remora_free_list *list, struct remora_free_list_facts *facts);

/* ---- operations ---- */

struct remora_sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

enum {
    REMORA_READ = 0,         /* reads into the list; with REDIRECT there is no list, and `length` counts */
    REMORA_WRITE = 1,        /* writes the list; with DATA_INDIRECT `length` bytes of `source_addr` */
    REMORA_ALLOCATE = 2,     /* as WRITE, into a buffer of free list `remote_addr`; result: its address, with
                              * REMORA_REDIRECT too */
    REMORA_COMPARE_SWAP = 3, /* result: the old value */
    REMORA_FETCH_ADD = 4     /* result: the old value; compare_mask: the highest bit of each field */
};

enum { REMORA_SEND_SIGNALED = 1, REMORA_SEND_FENCE = 2, REMORA_SEND_INLINE = 4 };

enum {
    REMORA_ADDR_INDIRECT = 0x40,    /* remote_addr holds a pointer to the target; not for ALLOCATE */
    REMORA_ADDR_BOUNDED = 0x20,     /* a bound follows the pointer; READ and WRITE, with ADDR_INDIRECT */
    REMORA_DATA_INDIRECT = 0x10,    /* WRITE and ALLOCATE */
    REMORA_CONDITIONAL = 0x08,      /* executed only if the previous operation succeeded */
    REMORA_REDIRECT = 0x04,         /* the output goes to the peer's redirect_addr; not for WRITE */
    REMORA_COMPARE_INDIRECT = 0x100, /* compare[0] is the address of the operand at the peer */
    REMORA_SWAP_INDIRECT = 0x200     /* swap_add[0] is the address of the operand at the peer */
};

/* Comparison of the operand with the target: the swap happens if the operand is ... the target. */
enum {
    REMORA_EQUAL = 0,
    REMORA_NOT_EQUAL = 1,
    REMORA_LESS = 2,
    REMORA_LESS_EQUAL = 3,
    REMORA_GREATER = 4,
    REMORA_GREATER_EQUAL = 5
};

/* First address of the connection's own scratch memory at the peer. It has 32 bytes and needs no key. */
#define REMORA_SCRATCH UINT64_C(0xffffffffffffffe0)
#define REMORA_SCRATCH_LEN 32

struct remora_prism_atomic {
    uint32_t mode;
    uint32_t size;            /* 8, 16 or 32 */
    uint64_t compare_mask[4]; /* least significant word first */
    uint64_t swap_mask[4];
    uint64_t compare[4];
    uint64_t swap_add[4];
};

struct remora_prism_wr {
    uint64_t wr_id;
    struct remora_prism_wr *next;
    const struct remora_sge *sg_list; /* with REMORA_SEND_INLINE: addresses of bytes that are copied now */
    uint32_t num_sge;
    uint32_t opcode;
    uint32_t send_flags;
    uint32_t prism_flags;
    uint64_t remote_addr;
    uint32_t rkey;
    uint32_t length;
    uint64_t redirect_addr;
    uint64_t source_addr;
    struct remora_sge result; /* 8 bytes, or the atomic's size; length 0: no result; READs have no result */
    struct remora_prism_atomic atomic;
};

/* Posts a list with one doorbell. On failure *bad_wr (if not NULL) is the first that was refused; those
 * before it are posted. ENOMEM: the queue is full, poll. EOPNOTSUPP: the peer did not agree on PRISM.
 * ENOTCONN. EINVAL: a request that no NIC would take. Without prism_flags READ and WRITE are the plain
 * verbs. */
int remora_post_prism(struct remora_qp *qp, struct remora_prism_wr *wr, struct remora_prism_wr **bad_wr);

#ifdef __cplusplus
}
#endif

#endif
