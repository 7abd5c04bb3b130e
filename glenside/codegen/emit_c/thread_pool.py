"""A thread pool in C11 and POSIX whose workers claim pieces of a loop dynamically, with work stealing.

Each thread has a part of the steps, and claims pieces of it before it steals from others: successive loops give a
thread the same rows, which its cache still holds. Stolen rows move from another thread's cache, and back in the next
loop. The first thread to finish is mostly ahead by less time than a steal costs, so it waits before it steals.

The state of a part is a ticket, (job, next step), that changes atomically. A late worker finds a closed ticket or
another job, never a mixture, and nobody waits for a worker that has claimed nothing. Waiting threads spin for some
microseconds. An idle worker then yields, then sleeps; the caller sleeps too, while a worker still runs the last piece.
There is no global state.
"""

POOL = r"""
typedef int body(void *const *buffers, int64_t first, int64_t last, int64_t thread);
typedef struct part {
    atomic_uint_least64_t ticket; /* job << 32 | next step; CLOSED while a job is written */
    pthread_t worker;
    int place; /* its processor, or -1 */
    char alone[44];
} part;
typedef struct pool {
    atomic_int_least64_t done;
    atomic_int status, sleeping, closing, started, waiting;
    body *run;
    void *const *buffers;
    int64_t count, grain;
    int threads, created, caller;
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    part parts[];
} pool;
#define CLOSED 0xffffffffu

#define SPINS 4000
#define PATIENCE 2e-6 /* seconds that the steps of another one are left to it */
#define OWN 3 /* pieces of what is left of its own part, of which a thread claims one: fewer claims, which others see,
                 than of equal ones; smaller and smaller ones, so that nobody waits long */
#define PIECES 4 /* of another one's part */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* The caller, which sleeps, that steps are done. */
static __attribute__((noinline, cold)) void tell(pool *p)
{
    pthread_mutex_lock(&p->mutex);
    pthread_cond_signal(&p->finished);
    pthread_mutex_unlock(&p->mutex);
}

/* The caller sleeps until they are. */
static __attribute__((noinline, cold)) void sleep_until(pool *p, int64_t count)
{
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->waiting, 1);
    while (atomic_load(&p->done) < count) pthread_cond_wait(&p->finished, &p->mutex);
    atomic_store(&p->waiting, 0);
    pthread_mutex_unlock(&p->mutex);
}

/* Steps of the part of one thread that its ticket names, for another one; 0 where there is none left. */
static int claim(pool *p, int64_t of, int64_t thread)
{
    uint64_t ticket = atomic_load(&p->parts[of].ticket);
    int64_t first = (int64_t)(ticket & CLOSED);
    if (first == CLOSED) return 0;
    int64_t end = p->count * (of + 1) / p->threads, left = end - first;
    if (left <= 0) return 0;
    int64_t pieces = of == thread ? OWN : PIECES, grain = (left + pieces - 1) / pieces;
    if (of != thread && grain > p->grain) grain = p->grain;
    if (!atomic_compare_exchange_strong(&p->parts[of].ticket, &ticket, ticket + (uint64_t)grain)) return 1;
    int64_t last = first + grain < end ? first + grain : end;
    int status = p->run(p->buffers, first, last, thread);
    if (status) atomic_store(&p->status, status);
    atomic_fetch_add(&p->done, last - first);
    if (atomic_load(&p->waiting)) tell(p);
    return 1;
}

/* The same of another one's part, by one that has had nothing of its own since a while. */
static int help(pool *p, int64_t thread, double *since)
{
    double here = now(0);
    if (*since == 0) *since = here;
    if (here - *since < PATIENCE) return 0;
    for (int64_t turn = 1; turn < p->threads; turn++)
        if (claim(p, (thread + turn) % p->threads, thread)) return 1;
    return 0;
}

static int is_open(pool *p)
{
    for (int64_t of = 0; of < p->threads; of++) {
        uint64_t step = atomic_load(&p->parts[of].ticket) & CLOSED;
        if (step != CLOSED && (int64_t)step < p->count * (of + 1) / p->threads) return 1;
    }
    return 0;
}

static void *work(void *given)
{
    pool *p = given;
    int64_t thread = 1 + atomic_fetch_add(&p->started, 1);
    double since = 0;
    for (unsigned turn = 0; !atomic_load(&p->closing); turn++) {
        if (claim(p, thread, thread)) { turn = 0; since = 0; continue; }
        if (turn % 8 == 7 && help(p, thread, &since)) { turn = 0; continue; }
        if (turn < SPINS) { relax(); continue; }
        if (turn < SPINS + 2000) { sched_yield(); continue; }
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

/* Workers stay on processors of their own, where the caller is not: beside other work, threads of one program would
   stay together on one, since the other one is no less busy. */
static __attribute__((noinline, cold)) void settle(pool *p)
{
#if defined(__linux__) && defined(_GNU_SOURCE)
    int here = sched_getcpu(), cpu = 0;
    if (here < 0 || here == p->caller) return;
    p->caller = here;
    cpu_set_t open, one;
    if (sched_getaffinity(0, sizeof open, &open)) return;
    CPU_CLR(here, &open);
    for (int w = 0; w < p->created; w++) {
        part *own = &p->parts[w];
        if (own->place >= 0 && CPU_ISSET(own->place, &open)) CPU_CLR(own->place, &open); else own->place = -1;
    }
    for (int w = 0; w < p->created; w++) {
        if (p->parts[w].place >= 0) continue;
        while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &open)) cpu++;
        if (cpu == CPU_SETSIZE) return;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (!pthread_setaffinity_np(p->parts[w].worker, sizeof one, &one)) p->parts[w].place = cpu;
        cpu++;
    }
#else
    (void)p;
#endif
}

/* A loop of `count` steps by all threads of a pool, or by this one alone. */
static __attribute__((noinline)) int for_all(pool *p, body *run, void *const *buffers, int64_t count)
{
    if (!p || count < 2) return run(buffers, 0, count, 0);
    settle(p);
    uint64_t job = (atomic_load(&p->parts[0].ticket) >> 32) + 1;
    for (int t = 0; t < p->threads; t++) atomic_store(&p->parts[t].ticket, job << 32 | CLOSED);
    p->run = run; p->buffers = buffers; p->count = count;
    p->grain = count / (8 * p->threads) > 1 ? count / (8 * p->threads) : 1;
    atomic_store(&p->done, 0);
    atomic_store(&p->status, 0);
    for (int t = p->threads - 1; t >= 0; t--)
        atomic_store(&p->parts[t].ticket, job << 32 | (uint64_t)(p->count * t / p->threads));
    wake(p);
    while (claim(p, 0, 0)) ;
    for (double since = 0; is_open(p);)
        if (!help(p, 0, &since)) relax();
    for (unsigned turn = 0; atomic_load(&p->done) < count && turn < SPINS; turn++) relax();
    if (atomic_load(&p->done) < count) sleep_until(p, count);
    return atomic_load(&p->status);
}

PUBLIC void close_pool(void *given)
{
    pool *p = given;
    atomic_store(&p->closing, 1);
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 0; i < p->created; i++) pthread_join(p->parts[i].worker, 0);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->finished);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* So many threads, of which the caller is one; 0 where there are not that many to be had. */
PUBLIC void *open_pool(int threads)
{
    if (threads < 1) threads = 1;
    pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof(part));
    if (!p) return 0;
    p->threads = threads;
    p->caller = -1;
    for (int t = 0; t < threads; t++) { atomic_init(&p->parts[t].ticket, CLOSED); p->parts[t].place = -1; }
    pthread_mutex_init(&p->mutex, 0);
    pthread_cond_init(&p->wake, 0);
    pthread_cond_init(&p->finished, 0);
    while (p->created < threads - 1) {
        if (pthread_create(&p->parts[p->created].worker, 0, work, p)) { close_pool(p); return 0; }
        p->created++;
    }
    return p;
}
"""

NO_POOL = r"""
/* No loop of this program is worth a second thread. */
PUBLIC void *open_pool(int threads) { (void)threads; return malloc(1); }
PUBLIC void close_pool(void *given) { free(given); }
"""
