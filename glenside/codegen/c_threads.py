"""Threads in C11 and POSIX: a pool whose workers claim pieces of a loop as they come.

What is to be done is a ticket, (job, next piece), that is only ever changed whole: a worker that comes late finds a
closed ticket or another job, never half of one, and nobody waits for a worker that has claimed nothing. Who waits spins
for some microseconds, then yields; a worker that finds nothing for a while sleeps. Nothing is global.
"""

POOL = r"""
typedef int body(void *const *buffers, int64_t first, int64_t last, int64_t thread);
typedef struct pool {
    atomic_uint_least64_t ticket; /* job << 32 | next piece; CLOSED while a job is written */
    atomic_int_least64_t done;
    atomic_int status, sleeping, closing, started;
    body *run;
    void *const *buffers;
    int64_t count, grain;
    int threads;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t workers[];
} pool;
#define CLOSED 0xffffffffu

static void relax(unsigned turn)
{
    if (turn > 4000) { sched_yield(); return; }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Some pieces of the job that a ticket names, for a thread; 0 where there is none left. */
static int claim(pool *p, int64_t thread)
{
    uint64_t ticket = atomic_load(&p->ticket);
    int64_t first = (int64_t)(ticket & CLOSED);
    if (first == CLOSED) return 0;
    int64_t count = p->count, grain = p->grain;
    if (first >= count) return 0;
    if (!atomic_compare_exchange_strong(&p->ticket, &ticket, ticket + (uint64_t)grain)) return 1;
    int64_t last = first + grain < count ? first + grain : count;
    int status = p->run(p->buffers, first, last, thread);
    if (status) atomic_store(&p->status, status);
    atomic_fetch_add(&p->done, last - first);
    return 1;
}

static int is_open(pool *p)
{
    uint64_t piece = atomic_load(&p->ticket) & CLOSED;
    return piece != CLOSED && (int64_t)piece < p->count;
}

static void *work(void *given)
{
    pool *p = given;
    int64_t thread = 1 + atomic_fetch_add(&p->started, 1);
    for (unsigned turn = 0; !atomic_load(&p->closing); turn++) {
        if (claim(p, thread)) { turn = 0; continue; }
        if (turn < 6000) { relax(turn); continue; }
        pthread_mutex_lock(&p->mutex);
        atomic_fetch_add(&p->sleeping, 1);
        if (!is_open(p) && !atomic_load(&p->closing)) pthread_cond_wait(&p->wake, &p->mutex);
        atomic_fetch_sub(&p->sleeping, 1);
        pthread_mutex_unlock(&p->mutex);
        turn = 0;
    }
    return 0;
}

static void wake(pool *p)
{
    if (!atomic_load(&p->sleeping)) return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

/* A loop of `count` steps by all threads of a pool, or by this one alone. */
static int for_all(pool *p, body *run, void *const *buffers, int64_t count)
{
    if (!p || count < 2) return run(buffers, 0, count, 0);
    uint64_t job = (atomic_load(&p->ticket) >> 32) + 1;
    atomic_store(&p->ticket, job << 32 | CLOSED);
    p->run = run; p->buffers = buffers; p->count = count;
    p->grain = count / (8 * p->threads) > 1 ? count / (8 * p->threads) : 1;
    atomic_store(&p->done, 0);
    atomic_store(&p->status, 0);
    atomic_store(&p->ticket, job << 32);
    wake(p);
    while (claim(p, 0)) ;
    for (unsigned turn = 0; atomic_load(&p->done) < count; turn++) relax(turn);
    return atomic_load(&p->status);
}

PUBLIC void close_pool(void *given)
{
    pool *p = given;
    atomic_store(&p->closing, 1);
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < p->threads - 1; i++) pthread_join(p->workers[i], 0);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* A worker stays on a processor of its own: the caller then moves to another one. */
static void stay(pool *p, int worker)
{
#if defined(__linux__) && defined(_GNU_SOURCE)
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < 2) return;
    int place = worker % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || place--) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(p->workers[worker - 1], sizeof one, &one);
        return;
    }
#else
    (void)p; (void)worker;
#endif
}

/* So many threads, of which the caller is one; 0 where there are not that many to be had. */
PUBLIC void *open_pool(int threads)
{
    pool *p = calloc(1, sizeof *p + (size_t)(threads > 1 ? threads - 1 : 0) * sizeof(pthread_t));
    if (!p) return 0;
    atomic_init(&p->ticket, CLOSED);
    pthread_mutex_init(&p->mutex, 0);
    pthread_cond_init(&p->wake, 0);
    for (p->threads = 1; p->threads < threads; p->threads++) {
        if (pthread_create(&p->workers[p->threads - 1], 0, work, p)) { close_pool(p); return 0; }
        stay(p, p->threads);
    }
    return p;
}
"""

NO_POOL = r"""
/* No loop of this program is worth a second thread. */
PUBLIC void *open_pool(int threads) { (void)threads; return malloc(1); }
PUBLIC void close_pool(void *given) { free(given); }
"""
