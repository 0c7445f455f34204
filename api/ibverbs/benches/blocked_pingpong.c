/* The floor of a program that spins on memory: a ping-pong of two processes whose thread blocks in recv(2),
   each beside a thread of its own that spins on the same core. Prints the median of half a round trip in
   microseconds. blocked_pingpong MESSAGES CORE CORE */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 64 };

static void *spin(void *unused)
{
    (void)unused;
    for (volatile long turns = 0;; turns++)
        ;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int open_socket(struct sockaddr_in *own)
{
    socklen_t size = sizeof *own;
    int opened = socket(AF_INET, SOCK_DGRAM, 0);
    *own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (opened < 0 || bind(opened, (struct sockaddr *)own, size) || getsockname(opened, (struct sockaddr *)own, &size)) {
        perror("blocked_pingpong");
        exit(1);
    }
    return opened;
}

int main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "usage: blocked_pingpong MESSAGES CORE CORE\n");
        return 2;
    }
    long messages = atol(words[1]);
    struct sockaddr_in addresses[2];
    int sockets[2] = {open_socket(&addresses[0]), open_socket(&addresses[1])};
    pid_t child = fork();
    int side = child == 0;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(words[2 + side]), &core);
    pthread_t spinner;
    char message[LEN] = {0};
    double *times = malloc(sizeof *times * messages);
    if (child < 0 || times == NULL || sched_setaffinity(0, sizeof core, &core) ||
        connect(sockets[side], (struct sockaddr *)&addresses[!side], sizeof addresses[0]) ||
        pthread_create(&spinner, NULL, spin, NULL)) {
        perror("blocked_pingpong");
        return 1;
    }
    for (long at = 0; at < messages; at++) {
        double began = now_us();
        if (side == 0)
            send(sockets[side], message, LEN, 0);
        recv(sockets[side], message, LEN, 0);
        if (side == 1)
            send(sockets[side], message, LEN, 0);
        times[at] = (now_us() - began) / 2;
    }
    if (side == 1)
        _exit(0);
    waitpid(child, NULL, 0);
    qsort(times, messages, sizeof *times, compare);
    printf("%.1f\n", times[messages / 2]);
    return 0;
}
