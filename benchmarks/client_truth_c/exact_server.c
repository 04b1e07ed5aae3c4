// A server whose timing is known: it answers each POST with TOKENS server-sent events, the first TTFT milliseconds after
// the request's last byte was read, each later one ITL milliseconds after the one before was due.
//   exact_server TTFT ITL TOKENS      prints its port on 127.0.0.1, and runs until it is killed
// One thread; every event is rendered before the first request.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MOST_STREAMS = 4096, MOST_BODY = 1 << 18 };
struct stream { char *in; size_t got; int next; double due; };  // next: the event that is due, -1 for none
static struct stream *streams[MOST_STREAMS];  // by file descriptor
static int busy[MOST_STREAMS], busy_count;
static char **events;
static size_t *sizes;
static double ttft, itl;
static int tokens;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void render(void) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    events = calloc(tokens, sizeof *events);
    sizes = calloc(tokens, sizeof *sizes);
    for (int k = 0; k < tokens; k++) {
        char *text = malloc(tokens + 2), *data, *all;
        memset(text, 'x', k + 1);
        text[k + 1] = 0;
        int size = asprintf(&data, "data: {\"text\": \"%s\", \"meta_info\": {\"prompt_tokens\": 1, \"cached_tokens\": 0, "
                            "\"completion_tokens\": %d, \"finish_reason\": null}}\n\n", text, k + 1);
        sizes[k] = asprintf(&all, "%s%x\r\n%s\r\n%s", k ? "" : head, size, data, k == tokens - 1 ? end : "");
        events[k] = all;
        free(text);
        free(data);
    }
}

static void drop(int fd) {
    for (int i = 0; i < busy_count; i++) if (busy[i] == fd) busy[i--] = busy[--busy_count];
    free(streams[fd]->in);
    free(streams[fd]);
    streams[fd] = NULL;
    close(fd);
}

static void hear(int fd) {
    struct stream *s = streams[fd];
    ssize_t n = recv(fd, s->in + s->got, MOST_BODY - 1 - s->got, 0);
    if (n <= 0) { drop(fd); return; }
    s->in[s->got += n] = 0;
    char *end = memmem(s->in, s->got, "\r\n\r\n", 4), *length = strcasestr(s->in, "\r\ncontent-length:");
    if (!end || s->next >= 0) return;
    size_t whole = end + 4 - s->in + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    if (s->got < whole) return;
    s->got = 0;
    s->next = 0;
    s->due = now() + ttft;
    busy[busy_count++] = fd;
}

static double send_due(void) {  // when the next event is due; 0 for none
    double next = 0;
    for (int i = 0; i < busy_count; i++) {
        struct stream *s = streams[busy[i]];
        if (s->due <= now()) {
            int fd = busy[i], k = s->next++;
            s->due += itl;
            if (s->next == tokens) { s->next = -1; busy[i--] = busy[--busy_count]; }
            if (send(fd, events[k], sizes[k], MSG_NOSIGNAL) != (ssize_t)sizes[k]) { drop(fd); i = -1; next = 0; continue; }
            if (s->next < 0) continue;
        }
        if (!next || s->due < next) next = s->due;
    }
    return next;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    ttft = atof(words[1]) / 1e3;
    itl = atof(words[2]) / 1e3;
    tokens = atoi(words[3]);
    render();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poll = epoll_create1(0);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (bind(listener, (void *)&address, size) || listen(listener, MOST_STREAMS)) { perror("exact_server"); return 1; }
    getsockname(listener, (void *)&address, &size);
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, 9);
    int own[] = {listener, timer};
    for (int i = 0; i < 2; i++) epoll_ctl(poll, EPOLL_CTL_ADD, own[i], &(struct epoll_event){EPOLLIN, {.fd = own[i]}});
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event ready[256];
        int n = epoll_wait(poll, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            unsigned long long rings;
            if (fd == timer) { if (read(timer, &rings, sizeof rings) < 0) continue; }
            else if (fd != listener) { if (streams[fd]) hear(fd); }
            else for (int c; (c = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0; ) {
                if (c >= MOST_STREAMS) { close(c); continue; }
                setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                streams[c] = calloc(1, sizeof **streams);
                streams[c]->in = malloc(MOST_BODY);
                streams[c]->next = -1;
                epoll_ctl(poll, EPOLL_CTL_ADD, c, &(struct epoll_event){EPOLLIN, {.fd = c}});
            }
        }
        double next = send_due();
        struct itimerspec at = {.it_value = {(time_t)next, (long)((next - (time_t)next) * 1e9)}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    }
}
