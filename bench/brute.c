/* The loop of fastflow/physics/timing/tiling/brute_force.py by hand: the yardstick for what Numba makes of it.
   Tables are those of fastflow/physics/timing/tiling/search_space.py, in the same layout. */
#include <math.h>
#include <stdint.h>

enum { M, K, N, PER_M, PER_K, PER_N, PARTS, COMPUTE, IDLE, MOVED, TIME, ACCESSED, PATH_COLUMNS };
enum { PART = 3 };
enum { VISITS, FILLED, INVERSE };
#define TILE_COLUMNS 9

typedef struct {
    double a, b, c, pass_c;                                 /* operands */
    double unit_m, unit_k, unit_n, weight, activation, output;
    double batch, flops, floor, access, instances;
    int64_t top_k, levels, dealt, exponents, rows;
} problem;

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }
static inline int64_t lower(int64_t a, int64_t b) { return a < b ? a : b; }

static int step(const problem *p, const double *sides, int64_t level, int64_t i, const int64_t *exponent,
                double *path, int64_t *path_exponent)
{
    const int64_t e = p->exponents, *own = exponent + level * 4 * p->rows;
    double *here = path + level * PATH_COLUMNS, *out = here + PATH_COLUMNS;
    int64_t *here_e = path_exponent + level * 3, *out_e = here_e + 3;
    for (int axis = 0; axis < 3; axis++) {
        int64_t x = lower(own[axis * p->rows + i], out_e[axis]);
        here_e[axis] = x;
        here[axis] = sides[(VISITS * 3 + axis) * e + x];
        here[PER_M + axis] = sides[(INVERSE * 3 + axis) * e + x];
    }
    if (level != p->dealt) {
        here[COMPUTE] = out[COMPUTE], here[IDLE] = out[IDLE], here[PARTS] = out[PARTS];
        return 1;
    }
    const int64_t part = own[PART * p->rows + i];
    const double parts = sides[(VISITS * 3 + K) * e + part];
    const double tiles = here[M] * here[N] * parts * p->batch;
    const double at_work = ceil(tiles / p->instances) * p->instances;
    const double volume = sides[(FILLED * 3 + M) * e + here_e[M]] * sides[(FILLED * 3 + K) * e + part]
                        * sides[(FILLED * 3 + N) * e + here_e[N]];
    here[COMPUTE] = larger(p->floor, 2.0 * at_work * volume / p->flops);
    here[IDLE] = at_work / tiles;
    here[PARTS] = parts;
    return part >= p->top_k
        || here[M] * here[N] * sides[(VISITS * 3 + K) * e + part + 1] * p->batch < p->instances;
}

static int precedes(const problem *p, const double *path, const double *best)
{
    if (path[TIME] != best[TIME]) return path[TIME] < best[TIME];
    for (int64_t l = p->levels - 1; l >= 0; l--) {
        double x = path[l * PATH_COLUMNS + MOVED], y = best[l * PATH_COLUMNS + MOVED];
        if (x != y) return x < y;
    }
    if (path[ACCESSED] != best[ACCESSED]) return path[ACCESSED] < best[ACCESSED];
    for (int64_t l = p->levels - 1; l >= 0; l--)
        for (int axis = 0; axis < 3; axis++) {
            double x = path[l * PATH_COLUMNS + axis], y = best[l * PATH_COLUMNS + axis];
            if (x != y) return x < y;
        }
    return path[PARTS] < best[PARTS];
}

static int moves_more(const problem *p, const double *path, const double *best)
{
    for (int64_t l = p->levels - 1; l >= 1; l--) {
        double x = path[l * PATH_COLUMNS + MOVED], y = best[l * PATH_COLUMNS + MOVED];
        if (x != y) return x > y;
    }
    return 0;
}

static inline double served(const problem *p, int stays, double out_m, double out_k, double out_n,
                            double m, double k, double n)
{
    double a = p->a * (stays == 0 ? out_n : n), b = p->b * (stays == 1 ? out_m : m);
    double passes = stays == 2 ? out_k : k;
    return a + b + p->pass_c * (passes - 1.0) + p->c;
}

/* of a chip that does not boost: cores at work are no faster where others are idle */
int64_t try_all(const problem *p, const double *bandwidth, const double *driven, const double *sides,
                const int64_t *count, const int64_t *exponent, const double *tile, int64_t *turn,
                double *path, int64_t *path_exponent, double *best, int64_t *best_exponent)
{
    const int64_t levels = p->levels, dealt = p->dealt, rows = p->rows;
    int64_t tried = 0, level = levels - 1;
    turn[level * 2] = 0, turn[level * 2 + 1] = -1;
    while (level < levels) {
        const double *out = path + (level + 1) * PATH_COLUMNS;
        const double out_m = out[M], out_k = out[K], out_n = out[N];
        const double serving = bandwidth[level + 1], of_serving = driven[level + 1];
        if (level > 0) {
            int64_t *now = turn + level * 2;
            if (++now[1] == 3) now[0]++, now[1] = 0;
            if (now[0] == count[level]) { level++; continue; }
            if (now[1] == 0 && !step(p, sides, level, now[0], exponent, path, path_exponent)) {
                now[0]++, now[1] = -1;
                continue;
            }
            double *here = path + level * PATH_COLUMNS;
            double passes = level == dealt ? larger(out_k, here[PARTS]) : out_k;
            double moved = served(p, (int)now[1], out_m, passes, out_n, here[M], here[K], here[N]);
            here[MOVED] = moved;
            here[TIME] = larger(larger(out[TIME], here[COMPUTE]), moved / serving * larger(1.0, of_serving * here[IDLE]));
            level--;
            turn[level * 2] = 0, turn[level * 2 + 1] = -1;
            continue;
        }
        const double per_m = out[PER_M], per_k = out[PER_K], per_n = out[PER_N];
        double outside = out[TIME], idle = out[IDLE], passes = out_k;
        const double registers = bandwidth[0], of_registers = driven[0];
        int behind = moves_more(p, path, best);
        for (int64_t i = 0; i < count[0]; i++) {
            double k = larger(tile[K * rows + i], out_k);
            if (dealt == 0) {
                if (!step(p, sides, 0, i, exponent, path, path_exponent)) continue;
                outside = larger(out[TIME], path[COMPUTE]), idle = path[IDLE];
                passes = larger(out_k, path[PARTS]), k = larger(k, passes);
            }
            const double m = larger(tile[M * rows + i], out_m), n = larger(tile[N * rows + i], out_n);
            const double by_m = larger(tile[PER_M * rows + i], per_m);
            const double by_k = larger(tile[PER_K * rows + i], per_k);
            const double by_n = larger(tile[PER_N * rows + i], per_n);
            const double accesses = smaller(p->weight + 0.5 * smaller(p->unit_m * by_m, 1.0),
                                    smaller(p->activation + 0.5 * smaller(p->unit_n * by_n, 1.0),
                                            p->output + 0.5 * smaller(p->unit_k * by_k, 1.0)));
            const double accessed = p->access * accesses;
            const double inside = larger(outside, accessed / registers * larger(1.0, of_registers * idle));
            for (int stays = 0; stays < 3; stays++) {
                const double moved = served(p, stays, out_m, passes, out_n, m, k, n);
                const double time = larger(inside, moved / serving * larger(1.0, of_serving * idle));
                tried++;
                if (time > best[TIME] || (behind && time == best[TIME])) continue;
                step(p, sides, 0, i, exponent, path, path_exponent);
                path[TIME] = time, path[MOVED] = moved, path[ACCESSED] = accessed;
                if (precedes(p, path, best)) {
                    for (int64_t x = 0; x < (levels + 1) * PATH_COLUMNS; x++) best[x] = path[x];
                    for (int64_t x = 0; x < (levels + 1) * 3; x++) best_exponent[x] = path_exponent[x];
                    behind = 0;
                }
            }
        }
        level++;
    }
    return tried;
}
