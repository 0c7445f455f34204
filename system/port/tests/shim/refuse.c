/* Preloaded: refuses the optional calls of the udp port with an errno of the test's choice, as some kernels
 * and devices do.
 *
 * REMORA_REFUSE  the call: "cut" (a train in sendmsg or sendmmsg), "join" (asking for joined trains), "joined"
 *                (reading them)
 * REMORA_ERRNO   its errno
 * REMORA_TIMES   how often; without it, always
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UDP 17
#define SEGMENT 103
#define GRO 104

static int refuses(const char *what)
{
    static int times = -1;
    const char *which = getenv("REMORA_REFUSE");
    if (!which || strcmp(which, what) != 0)
        return 0;
    const char *most = getenv("REMORA_TIMES");
    if (times < 0)
        times = most ? atoi(most) : 0;
    if (most && times-- <= 0) {
        times = 0;
        return 0;
    }
    errno = atoi(getenv("REMORA_ERRNO"));
    return 1;
}

static int is_train(const struct msghdr *message)
{
    struct msghdr *m = (struct msghdr *)message;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == UDP && c->cmsg_type == SEGMENT)
            return 1;
    return 0;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (is_train(message) && refuses("cut"))
        return -1;
    return syscall(SYS_sendmsg, fd, message, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    for (unsigned int at = 0; at < count; at++)
        if (is_train(&messages[at].msg_hdr) && refuses("cut"))
            return -1;
    return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    if (message->msg_control && refuses("joined"))
        return -1;
    return syscall(SYS_recvmsg, fd, message, flags);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (level == UDP && name == GRO && *(const int *)value && refuses("join"))
        return -1;
    return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}
