// The client that ours is compared with: one thread, a closed loop over kept connections, nothing but reading.
//   reference_client PORT STREAMS REQUESTS TOKENS
// TTFT runs from just before the send to the read of the first event, ITL from event to event. Prints
// {"ttft_mean", "ttft_p99", "itl_mean", "requests_s"}, times in milliseconds; ends with 1 where an answer is not whole.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct stream { int fd, events; double sent, last; char tail[8]; size_t kept; };
static double *ttft, gaps;
static long ttft_count, gap_count;
static int left, flying, tokens, poll;
static char request[512];
static int request_size;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *why) { fprintf(stderr, "reference_client: %s: %s\n", why, strerror(errno)); exit(1); }

static void ask(struct stream *s) {
    if (!left) { flying--; close(s->fd); return; }
    left--;
    s->events = 0;
    s->kept = 0;
    s->sent = now();
    if (send(s->fd, request, request_size, MSG_NOSIGNAL) != request_size) fail("send");
}

static void hear(struct stream *s) {
    static char data[1 << 17];
    memcpy(data, s->tail, s->kept);
    ssize_t n = recv(s->fd, data + s->kept, sizeof data - s->kept, 0);
    double at = now();
    if (n <= 0) fail("recv");
    char *from = data, *end = data + s->kept + n, *mark;
    while ((mark = memmem(from, end - from, "data: {", 7))) {  // the mark stands at the beginning of each event
        if (s->events++) { gaps += at - s->last; gap_count++; }
        else ttft[ttft_count++] = at - s->sent;
        s->last = at;
        from = mark + 7;
    }
    if (end - from >= 5 && !memcmp(end - 5, "0\r\n\r\n", 5) && s->events >= tokens) {
        if (s->events != tokens) fail("more events than tokens");
        ask(s);
        return;
    }
    s->kept = end - from < 6 ? end - from : 6;
    memcpy(s->tail, end - s->kept, s->kept);
}

static int upwards(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }

int main(int count, char **words) {
    if (count != 5) return 2;
    int streams = atoi(words[2]), requests = atoi(words[3]), one = 1;
    tokens = atoi(words[4]);
    left = requests;
    flying = streams;
    ttft = calloc(requests, sizeof *ttft);
    struct stream *all = calloc(streams, sizeof *all);
    char body[64];
    int size = sprintf(body, "{\"input_ids\": [300], \"stream\": true}");
    request_size = sprintf(request, "POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, body);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    poll = epoll_create1(0);
    prctl(PR_SET_TIMERSLACK, 1);
    for (struct stream *s = all; s < all + streams; s++) {
        s->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (s->fd < 0 || connect(s->fd, (void *)&address, sizeof address)) fail("connect");
        setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(s->fd, F_SETFL, O_NONBLOCK);
        epoll_ctl(poll, EPOLL_CTL_ADD, s->fd, &(struct epoll_event){EPOLLIN, {.ptr = s}});
    }
    double began = now();
    for (struct stream *s = all; s < all + streams; s++) ask(s);
    while (flying) {
        struct epoll_event ready[64];
        int n = epoll_wait(poll, ready, 64, 30000);
        if (!n) fail("nothing for 30 s");
        for (int i = 0; i < n; i++) hear(ready[i].data.ptr);
    }
    double took = now() - began, sum = 0;
    for (long i = 0; i < ttft_count; i++) sum += ttft[i];
    qsort(ttft, ttft_count, sizeof *ttft, upwards);
    double place = (ttft_count - 1) * 0.99;
    long below = place, above = below + 1 < ttft_count ? below + 1 : below;
    double p99 = ttft[below] + (ttft[above] - ttft[below]) * (place - below);
    printf("{\"ttft_mean\": %.4f, \"ttft_p99\": %.4f, \"itl_mean\": %.5f, \"requests_s\": %.4f}\n", sum / ttft_count * 1e3,
           p99 * 1e3, gap_count ? gaps / gap_count * 1e3 : 0, requests / took);
    return 0;
}
