/* Preloaded: refuses the optional calls of the udp port with an errno of the test's choice, as some kernels
 * and devices do.
 *
 * REMORA_REFUSE  the call: "cut" (a train in sendmsg), "join" (asking for joined trains), "joined"
 *                (reading them)
 * REMORA_ERRNO   its errno
 * REMORA_TIMES   how often; without it, always
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define UDP 17
#define SEGMENT 103
#define GRO 104
/* Sixth argument of the system calls that the filter lets pass; the kernel ignores it. */
#define MARK 0x52454d4f

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

/* Executes the call or refuses it; returns -1 with errno, as the C library does. */
static ssize_t send_or_refuse(long call, int fd, struct msghdr *message, int flags)
{
    if (is_train(message) && refuses("cut"))
        return -1;
    return syscall(call, fd, message, flags, 0, 0, MARK);
}

static ssize_t receive_or_refuse(long call, int fd, struct msghdr *message, int flags)
{
    if (message->msg_control && refuses("joined"))
        return -1;
    return syscall(call, fd, message, flags, 0, 0, MARK);
}

#ifdef __x86_64__
/* The port makes the system calls itself, so a filter sends a signal for each that does not come from here. */
static void trapped(int signal, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    struct msghdr *message = (struct msghdr *)registers[REG_RSI];
    int fd = (int)registers[REG_RDI], flags = (int)registers[REG_RDX], before = errno;
    ssize_t result = info->si_syscall == SYS_sendmsg ? send_or_refuse(SYS_sendmsg, fd, message, flags)
                                                     : receive_or_refuse(SYS_recvmsg, fd, message, flags);
    registers[REG_RAX] = result < 0 ? -errno : result;
    errno = before;
    (void)signal;
}

__attribute__((constructor)) static void trap(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvmsg, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MARK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        abort();
}
#else
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return send_or_refuse(SYS_sendmsg, fd, (struct msghdr *)message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    return receive_or_refuse(SYS_recvmsg, fd, message, flags);
}
#endif

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (level == UDP && name == GRO && *(const int *)value && refuses("join"))
        return -1;
    return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}
