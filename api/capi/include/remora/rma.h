/* 1RMA for C programs: encrypted and authenticated reads and writes of another process's memory, without
 * connections. It builds on <remora/prism.h>, whose rules of errors, handles and threads hold here too.
 * docs/reference/rma.md says what the operations do and whom they keep out, docs/guides/c.md is the tour.
 *
 * A server registers regions and gives each client a grant: keys that are good for that client alone. It
 * keeps nothing of the client. A client reads, writes and rekeys through a portal.
 *
 * A grant is secret: send it by a way that nobody else can read. Open the device with the address that the
 * peers see: keys are derived from it. */
#ifndef REMORA_RMA_H
#define REMORA_RMA_H

#include <remora/prism.h>

#ifdef __cplusplus
extern "C" {
#endif

struct remora_rma;
struct remora_rma_region;
struct remora_rma_portal;

/* ---- 1RMA of a device ---- */

struct remora_rma_attr {
    uint32_t regions;             /* at most, local operands included: 1 to 2^20 */
    uint32_t keys;                /* key schedules that stay expanded: 2 to 2^20 */
    uint32_t slots;               /* commands of all portals at once: 1 to 32767 */
    uint32_t served;              /* operations of peers that are served at once: 1 to 32767 */
    uint32_t window;              /* bytes that may be on their way to this NIC: 4096 to 2^30 */
    uint32_t dispatch_timeout_us; /* for the window: 1 to 4000000 */
    uint32_t timeout_us;          /* for an operation in service: 1 to 4000000 */
};

/* Fills in the default attributes. Call it first, then change what differs. */
int remora_rma_attr_default(struct remora_rma_attr *attr);
/* Enables 1RMA on the device. EBUSY: it is enabled already. */
int remora_open_rma(struct remora_context *context, const struct remora_rma_attr *attr, struct remora_rma **rma);
/* Closes the handle. Regions and portals stay in use until they are destroyed. */
int remora_close_rma(struct remora_rma *rma);

/* ---- regions and grants ---- */

enum { REMORA_RMA_RIGHT_READ = 1, REMORA_RMA_RIGHT_WRITE = 2, REMORA_RMA_RIGHT_REKEY = 4 };

/* Registers memory of the program, which must stay mapped until the region is gone. Peers that have a grant
 * use it with these rights; without rights it is a local operand alone. `key` has 16 bytes, not all zero;
 * NULL: a random one. ENOMEM: the limit of regions is reached. */
int remora_rma_reg_mr(struct remora_rma *rma, struct remora_pd *pd, void *addr, size_t length, uint32_t rights,
                      const void *key, struct remora_rma_region **region);
int remora_rma_dereg_mr(struct remora_rma_region *region);
int remora_rma_region_id(const struct remora_rma_region *region, uint32_t *id);
/* Gives the region another key; NULL: a random one. Grants under the old one fail from now on. */
int remora_rma_set_key(struct remora_rma_region *region, const void *key);

/* The identity of a client, from which a server derives its keys. It is no secret. Send the bytes as they are,
 * to a machine of the same byte order. */
struct remora_rma_identity {
    uint8_t address[16]; /* IPv6, or IPv4 mapped into it */
    uint32_t pid;
    uint32_t incarnation;
};

/* The address of a region and the keys of one client. The byte order is fixed, so Rust programs can read it
 * (Grant::from_bytes). */
struct remora_rma_grant {
    uint8_t bytes[78];
};

/* Derives the keys of a client for operations with these rights. `key` is the region's key to derive from, such
 * as the next one; NULL: the present one. */
int remora_rma_grant(const struct remora_rma_region *region, const struct remora_rma_identity *client,
                     uint32_t rights, const void *key, struct remora_rma_grant *grant);
/* Returns the length of the granted region in bytes. */
int remora_rma_grant_length(const struct remora_rma_grant *grant, uint64_t *length);
/* Port xdp: finds the way to the server, once before the first operation. EHOSTUNREACH. Port udp needs none.
 * Over shm a connected queue pair between the two devices makes it. */
int remora_rma_reach(struct remora_rma *rma, const struct remora_rma_grant *grant);

/* ---- portals and transfers ---- */

/* A portal with 1 to 16384 command slots, for local operands of this domain. ENOMEM: the device has too few
 * that are free. */
int remora_rma_create_portal(struct remora_rma *rma, struct remora_pd *pd, uint32_t slots,
                             struct remora_rma_portal **portal);
/* Destroys a portal. Transfers in progress end without completions. */
int remora_rma_destroy_portal(struct remora_rma_portal *portal);
int remora_rma_identity(const struct remora_rma_portal *portal, struct remora_rma_identity *identity);

enum {
    REMORA_RMA_READ = 0,  /* from the region that was granted into the local one */
    REMORA_RMA_WRITE = 1, /* from the local region into the one that was granted */
    REMORA_RMA_REKEY = 2  /* 16 bytes of the local region become the key of the other; length 16, remote_offset 0 */
};

struct remora_rma_wr {
    uint64_t wr_id;
    const struct remora_rma_region *local; /* of this device and the portal's domain */
    uint64_t local_offset;
    const struct remora_rma_grant *grant; /* copied */
    uint64_t remote_offset;
    uint64_t length;     /* at least 1, as long as both regions allow */
    uint32_t opcode;     /* REMORA_RMA_* */
    uint32_t bulk;       /* 1: bulk class, which yields to other transfers */
    uint32_t timeout_ms; /* time for repeating commands after NACKs and timeouts; 0: no repetition */
};

/* Begins a transfer. EINVAL: the bytes lie outside of a region. ENOMEM: 1024 transfers are in progress; poll. */
int remora_rma_post(struct remora_rma_portal *portal, const struct remora_rma_wr *wr);

enum {
    REMORA_RMA_OK = 0,
    REMORA_RMA_AUTHENTICATION_FAILURE = 1, /* the server has another key for this region, or no such region */
    REMORA_RMA_NACK = 2,                   /* the server is overloaded */
    REMORA_RMA_TIMEOUT = 3,                /* no answer in time: a write may have taken partial effect */
    REMORA_RMA_DISPATCH_TIMEOUT = 4,       /* never sent: the local window was full */
    REMORA_RMA_ACCESS_ERROR = 5,           /* the region lacks the right, or the bytes lie outside of it */
    REMORA_RMA_LOCAL_ERROR = 6             /* the local region is gone, or of another domain */
};

struct remora_rma_wc {
    uint64_t wr_id;
    uint32_t status;   /* REMORA_RMA_*: of the first command that failed */
    uint32_t reserved; /* always 0 */
};

/* Takes transfers that have ended, in any order, at most 64 at a time; returns their number, or a negative
 * errno. Transfers go on while the program polls. */
int remora_rma_poll(struct remora_rma_portal *portal, int count, struct remora_rma_wc *wc);
/* Polls until at least one transfer has ended; -ETIMEDOUT if none ends in time. */
int remora_rma_wait(struct remora_rma_portal *portal, int count, struct remora_rma_wc *wc, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
