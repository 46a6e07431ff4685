#include "emulated_nccl.hpp"

#include "emulated_cuda.hpp"

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/float16.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace emulated {

namespace {

struct member;

/// One rank's call of a collective, or one side of a transfer.
struct part {
    std::string kind;
    const char* from = nullptr;
    char* to = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclUint8;
    int operation = -1, root = -1, peer = -1;
    bool at_head = false;  // its stream has come to it
    bool done = false;

    std::string text() const {
        return cairn::concat(kind, " of ", count, " elements of type ", static_cast<int>(type), " (operation ",
                             operation, ", root ", root, ')');
    }
};
using part_pointer = std::shared_ptr<part>;

/// State shared by the ranks of one communicator.
struct world {
    int size = 0;
    std::vector<std::shared_ptr<member>> members;                             // by rank; null: has not come
    std::map<std::size_t, std::vector<part_pointer>> collectives;             // by number; by rank
    std::map<std::pair<int, int>, std::deque<part_pointer>> sends, receives;  // by (from, to)
    struct split_entry {
        int colour, key;
    };
    std::map<std::size_t, std::map<int, split_entry>> splits;                // by number; by rank
    std::map<std::pair<std::size_t, int>, std::shared_ptr<world>> children;  // by number of the split and colour
    int finalized = 0;
};

/// A communicator of one rank.
struct member {
    std::shared_ptr<world> all;
    int rank = 0, gpu = 0;
    ncclResult_t state = ncclInProgress;
    std::string why;
    int polls_left = 0;
    std::function<bool()> in_progress;  // what it waits for; asked at each poll
    std::size_t collectives = 0, splits = 0;
    int outstanding = 0;  // launches that are not through
    bool gone = false, finalizing = false;
};

}  // namespace

}  // namespace emulated

/// Target of a handle. Never freed, so that one that is used too late is found.
struct ncclComm {
    std::shared_ptr<emulated::member> m;
    bool open = true;
};

namespace emulated {

namespace {

struct library {
    nccl_behaviour how;
    std::map<std::uint64_t, std::shared_ptr<world>> worlds;  // by id
    std::uint64_t next_id = 1;
    std::vector<std::unique_ptr<ncclComm>> handles;
    std::map<std::string, int> calls;
    std::string trouble;  // of no communicator
};

library& the_library() {
    static auto* all = new library;
    return *all;
}

struct pending_call {
    std::shared_ptr<member> m;
    cudaStream_t stream;
    part_pointer what;
};
thread_local int depth = 0;
thread_local std::vector<pending_call> grouped;
thread_local ncclResult_t group_error = ncclSuccess;

void break_member(member& m, ncclResult_t state, const std::string& why) {
    if (m.gone || (m.state != ncclSuccess && m.state != ncclInProgress)) return;
    m.state = state;
    if (m.why.empty()) m.why = why;  // else of a call that was refused, and not asked about yet
    m.in_progress = nullptr;
    changed();
}
void break_world(world& w, ncclResult_t state, const std::string& why) {
    for (const auto& m : w.members)
        if (m) break_member(*m, state, why);
}

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8:
            return 1;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32:
            return 4;
        case ncclInt64:
        case ncclUint64:
        case ncclFloat64:
            return 8;
        default:
            cairn::fail("emulated NCCL: type ", static_cast<int>(type));
    }
}

template <class T>
void combine(char* into, const char* from, std::size_t count, int operation) {
    for (std::size_t i = 0; i < count; ++i) {
        T a, b;
        std::memcpy(&a, into + i * sizeof(T), sizeof(T));
        std::memcpy(&b, from + i * sizeof(T), sizeof(T));
        a = operation == ncclSum ? static_cast<T>(a + b) : operation == ncclMax ? (a < b ? b : a) : (b < a ? b : a);
        std::memcpy(into + i * sizeof(T), &a, sizeof(T));
    }
}
void combine(char* into, const char* from, std::size_t count, ncclDataType_t type, int operation) {
    switch (type) {
        case ncclInt8:
            return combine<std::int8_t>(into, from, count, operation);
        case ncclUint8:
            return combine<std::uint8_t>(into, from, count, operation);
        case ncclInt32:
            return combine<std::int32_t>(into, from, count, operation);
        case ncclUint32:
            return combine<std::uint32_t>(into, from, count, operation);
        case ncclInt64:
            return combine<std::int64_t>(into, from, count, operation);
        case ncclUint64:
            return combine<std::uint64_t>(into, from, count, operation);
        case ncclFloat32:
            return combine<float>(into, from, count, operation);
        case ncclFloat64:
            return combine<double>(into, from, count, operation);
        case ncclFloat16:
            return combine<cairn::float16>(into, from, count, operation);
        case ncclBfloat16:
            return combine<cairn::bfloat16>(into, from, count, operation);
        default:
            cairn::fail("emulated NCCL: type ", static_cast<int>(type));
    }
}

/// All ranks are here: moves the data. What is sent is read before anything is written.
void run_collective(const std::vector<part_pointer>& parts) {
    const part& first = *parts[0];
    const std::size_t p = parts.size(), bytes = first.count * size_of(first.type);
    const bool gathers = first.kind == "all-gather", scatters = first.kind == "reduce-scatter";
    std::vector<std::vector<char>> in;
    for (const auto& one : parts) {
        const std::size_t sent = scatters ? p * bytes : bytes;
        const bool sends = first.kind != "broadcast" || static_cast<std::size_t>(first.root) == in.size();
        in.push_back(sends && sent ? std::vector<char>(one->from, one->from + sent) : std::vector<char>());
    }
    const auto write = [&](std::size_t r, std::size_t at, const char* from) {
        if (bytes) std::memcpy(parts[r]->to + at, from, bytes);
    };
    for (std::size_t r = 0; r < p; ++r) {
        if (gathers) {
            for (std::size_t k = 0; k < p; ++k) write(r, k * bytes, in[k].data());
        } else if (first.kind == "broadcast") {
            write(r, 0, in[static_cast<std::size_t>(first.root)].data());
        } else if (first.kind != "reduce" || static_cast<std::size_t>(first.root) == r) {
            const std::size_t at = scatters ? r * bytes : 0;
            std::vector<char> sum(in[0].begin() + static_cast<std::ptrdiff_t>(at),
                                  in[0].begin() + static_cast<std::ptrdiff_t>(at + bytes));
            for (std::size_t k = 1; k < p; ++k)
                combine(sum.data(), in[k].data() + at, first.count, first.type, first.operation);
            write(r, 0, sum.data());
        }
    }
    for (const auto& one : parts) one->done = true;
    changed();
}

/// The next collective of rank m is `what`.
void enter_collective(member& m, const part_pointer& what) {
    auto& slot = m.all->collectives[m.collectives++];
    slot.resize(static_cast<std::size_t>(m.all->size));
    slot[static_cast<std::size_t>(m.rank)] = what;
    for (int r = 0; r < m.all->size; ++r)
        if (const auto& other = slot[static_cast<std::size_t>(r)]; other && other->text() != what->text())
            break_world(
                *m.all, ncclInvalidUsage,
                cairn::concat("rank ", r, " calls ", other->text(), ", rank ", m.rank, " calls ", what->text()));
}

/// Kernels of ranks in one process may read and write each other's buffers: false, and all ranks have an error, where a
/// GPU cannot.
bool reach_each_other(world& w, const std::vector<std::shared_ptr<member>>& ranks,
                      const std::vector<part_pointer>& parts) {
    for (const auto& m : ranks)
        for (const auto& one : parts)
            for (const char* const at : {one->from, static_cast<const char*>(one->to)}) {
                const std::size_t bytes = one->count * size_of(one->type);
                if (!at || bytes == 0 || may_reach(m->gpu, at, bytes)) continue;
                break_world(w, ncclUnhandledCudaError,
                            cairn::concat("GPU ", m->gpu, " may not reach another's memory"));
                return false;
            }
    return true;
}

/// One more asking: whether the part is done.
bool advance(member& m, part& what, std::size_t number) {
    if (what.done) return true;
    if (m.state != ncclSuccess && m.state != ncclInProgress) return false;
    world& w = *m.all;
    if (!what.at_head) {
        what.at_head = true;
        changed();
    }
    const auto is_gone = [](const auto& other) { return other->gone; };
    if (what.peer < 0) {
        const auto& slot = w.collectives[number];
        if (!std::ranges::all_of(slot, [](const auto& one) { return one && one->at_head; })) return false;
        if (std::ranges::any_of(w.members, is_gone)) return false;
        if (!reach_each_other(w, w.members, slot)) return false;
        run_collective(slot);
        w.collectives.erase(number);
        return true;
    }
    const std::pair way = what.kind == "send" ? std::pair(m.rank, what.peer) : std::pair(what.peer, m.rank);
    auto &sends = w.sends[way], &receives = w.receives[way];
    while (!sends.empty() && !receives.empty()) {
        const part_pointer s = sends.front(), r = receives.front();
        const std::size_t bytes = s->count * size_of(s->type), room = r->count * size_of(r->type);
        if (bytes != room || s->type != r->type) {
            break_world(w, ncclInvalidUsage,
                        cairn::concat("rank ", way.first, " sends ", bytes, " bytes to rank ", way.second,
                                      ", which expects ", room));
            return false;
        }
        const auto& peer = w.members[static_cast<std::size_t>(what.peer)];
        if (!s->at_head || !r->at_head || is_gone(peer)) break;
        if (!reach_each_other(w, {w.members[static_cast<std::size_t>(m.rank)], peer}, {s, r})) return false;
        if (bytes) std::memcpy(r->to, s->from, bytes);
        s->done = r->done = true;
        sends.pop_front();
        receives.pop_front();
        changed();
    }
    return what.done;
}

/// Puts the calls of one communicator into one stream, as one piece.
void enqueue(const std::shared_ptr<member>& m, cudaStream_t stream, const std::vector<part_pointer>& parts) {
    std::vector<std::pair<part_pointer, std::size_t>> numbered;
    for (const part_pointer& one : parts) {
        numbered.emplace_back(one, m->collectives);
        if (one->peer < 0)
            enter_collective(*m, one);
        else
            (one->kind == "send" ? m->all->sends[{m->rank, one->peer}] : m->all->receives[{one->peer, m->rank}])
                .push_back(one);
        ++the_library().calls[one->kind];
    }
    ++m->outstanding;
    launch_step(stream, [m, numbered] {
        bool all = true;
        if (!m->gone)
            for (const auto& [one, number] : numbered) all = advance(*m, *one, number) && all;
        if (all) --m->outstanding, changed();
        return all;
    });
}

ncclResult_t refuse(member* m, ncclResult_t result, const std::string& why) {
    (m ? m->why : the_library().trouble) = why;
    return result;
}

/// The rank behind a handle, ready for a call; else says what is wrong.
ncclResult_t find(ncclComm_t comm, std::shared_ptr<member>& m, bool ready = true) {
    const auto& all = the_library().handles;
    if (std::ranges::none_of(all, [&](const auto& h) { return h.get() == comm; }) || !comm->open)
        return refuse(nullptr, ncclInvalidArgument, "a communicator that is gone, or never was");
    m = comm->m;
    if (!ready) return ncclSuccess;
    if (m->state == ncclInProgress)
        return refuse(m.get(), ncclInvalidArgument, "used before the call before it has returned ncclSuccess");
    return m->state;
}

/// The answer to a call whose effect is `what`: now, or after enough questions for the state.
ncclResult_t answer(const std::shared_ptr<member>& m, std::function<bool()> what, bool always_later = false) {
    const unsigned one_of = the_library().how.in_progress;
    if (!always_later && (one_of == 0 || drawn(one_of) != 0)) {
        what();
        return ncclSuccess;
    }
    m->state = ncclInProgress;
    m->polls_left = static_cast<int>(1 + drawn(4));
    m->in_progress = std::move(what);
    return ncclInProgress;
}

ncclResult_t call(ncclComm_t comm, cudaStream_t stream, part what, bool scatters_or_gathers = false) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    ncclResult_t result = find(comm, m);
    const auto wrong = [&](const char* why) { result = refuse(m.get(), ncclInvalidArgument, why); };
    if (result == ncclSuccess) {
        const std::size_t bytes = what.count * size_of(what.type);
        const std::size_t p = static_cast<std::size_t>(m->all->size), r = static_cast<std::size_t>(m->rank);
        const bool scatters = what.kind == "reduce-scatter";
        const std::size_t read = scatters_or_gathers && scatters ? p * bytes : bytes,
                          written = scatters_or_gathers && !scatters ? p * bytes : bytes;
        const bool reads = what.from && (what.kind != "broadcast" || what.root == m->rank);
        const bool writes = what.to && (what.kind != "reduce" || what.root == m->rank);
        const char* const in_place = !scatters_or_gathers ? what.to
                                     : scatters           ? what.to - r * bytes
                                                          : what.to + r * bytes;
        if (gpu_of(stream) != m->gpu) wrong("a stream of another GPU, or none");
        if (bytes &&
            ((reads && !in_memory_of(m->gpu, what.from, read)) || (writes && !in_memory_of(m->gpu, what.to, written))))
            wrong("a buffer that is not in the memory of the communicator's GPU");
        if (bytes && reads && writes && what.from != in_place && what.from < what.to + written &&
            what.to < what.from + read)
            wrong("buffers that overlap");
        const bool transfers = what.kind == "send" || what.kind == "receive";
        if (transfers != (what.peer >= 0) || what.peer >= m->all->size || what.root >= m->all->size || what.root < -1)
            wrong("a rank that there is not");
    }
    const auto made = std::make_shared<part>(std::move(what));
    if (depth > 0) {
        if (result != ncclSuccess && group_error == ncclSuccess) group_error = result;
        if (result == ncclSuccess) grouped.push_back({m, stream, made});
        return result;
    }
    if (result != ncclSuccess) return result;
    return answer(m, [m, stream, made] {
        enqueue(m, stream, {made});
        return true;
    });
}

ncclComm_t handle_of(const std::shared_ptr<member>& m) {
    the_library().handles.push_back(std::make_unique<ncclComm>(ncclComm{m, true}));
    return the_library().handles.back().get();
}

std::shared_ptr<member> join(const std::shared_ptr<world>& w, int rank, int gpu) {
    auto m = std::make_shared<member>();
    m->all = w;
    m->rank = rank;
    m->gpu = gpu;
    w->members[static_cast<std::size_t>(rank)] = m;
    member* const self = m.get();
    answer(
        m,
        [self] { return std::ranges::all_of(self->all->members, [](const auto& other) { return other != nullptr; }); },
        true);
    changed();
    return m;
}

/// The communicator of rank m in split number n, once all have called it.
std::shared_ptr<member> child_of(member& m, std::size_t n) {
    const auto& entries = m.all->splits[n];
    if (static_cast<int>(entries.size()) < m.all->size) return nullptr;
    const int colour = entries.at(m.rank).colour;
    std::vector<std::pair<int, int>> order;  // key, old rank
    for (const auto& [rank, entry] : entries)
        if (entry.colour == colour) order.emplace_back(entry.key, rank);
    std::ranges::sort(order);
    auto& w = m.all->children[{n, colour}];
    if (!w) {
        w = std::make_shared<world>();
        w->size = static_cast<int>(order.size());
        w->members.resize(order.size());
    }
    const auto me = std::ranges::find(order, m.rank, &std::pair<int, int>::second);
    return join(w, static_cast<int>(me - order.begin()), m.gpu);
}

}  // namespace

void behave(const nccl_behaviour& how) {
    const std::scoped_lock guard(lock());
    the_library().how = how;
}
void break_gpu(int gpu, ncclResult_t state) {
    const std::scoped_lock guard(lock());
    for (const auto& h : the_library().handles)
        if (h->open && h->m->gpu == gpu) break_member(*h->m, state, "the test said so");
}
int nccl_calls(const std::string& kind) {
    const std::scoped_lock guard(lock());
    return the_library().calls[kind];
}
int open_communicators() {
    const std::scoped_lock guard(lock());
    return static_cast<int>(std::ranges::count_if(the_library().handles, [](const auto& h) { return h->open; }));
}

}  // namespace emulated

using namespace emulated;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::scoped_lock guard(lock());
    if (!the_library().how.gives_ids) return refuse(nullptr, ncclSystemError, "no network");
    *id = {};
    const std::uint64_t number = the_library().next_id++;
    std::memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    int gpu = 0;
    cudaGetDevice(&gpu);
    const std::scoped_lock guard(lock());
    *comm = nullptr;
    std::uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof number);
    if (number == 0 || number >= the_library().next_id) return refuse(nullptr, ncclInvalidArgument, "not an id");
    if (config->blocking != 0) return refuse(nullptr, ncclInvalidUsage, "emulated is only what does not block");
    auto& w = the_library().worlds[number];
    if (!w) {
        w = std::make_shared<world>();
        w->size = ranks;
        w->members.resize(static_cast<std::size_t>(ranks));
    }
    if (rank < 0 || rank >= ranks || w->size != ranks || w->members[static_cast<std::size_t>(rank)])
        return refuse(nullptr, ncclInvalidArgument, "a rank that is taken, or another number of ranks");
    const auto m = join(w, rank, gpu);
    *comm = handle_of(m);
    if (const ncclResult_t state = the_library().how.joining; state != ncclSuccess)
        m->in_progress = [m = m.get(), state] {
            break_member(*m, state, "the test said so");
            return false;
        };
    for (const auto& other : w->members)
        if (other && other != m && other->gpu == gpu) {
            const std::string why =
                cairn::concat("Duplicate GPU detected : rank ", std::min(rank, other->rank), " and rank ",
                              std::max(rank, other->rank), " both on CUDA device ", gpu);
            break_member(*m, ncclInvalidUsage, why);
            break_member(*other, ncclInvalidUsage, why);
        }
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m, false); found != ncclSuccess) return found;
    if (m->state == ncclInProgress && --m->polls_left <= 0 && m->in_progress) {
        const auto what = m->in_progress;  // may break the communicator
        if (what() && m->state == ncclInProgress) {
            m->in_progress = nullptr;
            m->state = ncclSuccess;
        }
    }
    *state = m->state;
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* made, ncclConfig_t* config) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m); found != ncclSuccess) return found;
    if (colour < 0 || config->blocking != 0) return refuse(m.get(), ncclInvalidArgument, "split");
    const std::size_t n = m->splits++;
    m->all->splits[n][m->rank] = {colour, key};
    *made = nullptr;
    const ncclResult_t begun = answer(
        m,
        [m = m.get(), n, made] {
            const auto child = child_of(*m, n);
            if (child) *made = handle_of(child);
            return child != nullptr;
        },
        true);
    return drawn(2) == 0 ? ncclSuccess : begun;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m); found != ncclSuccess) return found;
    if (m->finalizing) return refuse(m.get(), ncclInvalidArgument, "finalized twice");
    m->finalizing = true;
    ++m->all->finalized;
    return answer(
        m, [m = m.get()] { return m->outstanding == 0 && m->all->finalized == m->all->size; }, true);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m); found != ncclSuccess) return found;
    if (!m->finalizing) return refuse(m.get(), ncclInvalidUsage, "destroyed before it was finalized");
    comm->open = false;
    m->gone = true;
    changed();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m, false); found != ncclSuccess) return found;
    comm->open = false;
    m->gone = true;
    if (the_library().how.deaths_are_seen)
        break_world(*m->all, ncclRemoteError, cairn::concat("connection to rank ", m->rank, " closed"));
    changed();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m); found != ncclSuccess) return found;
    *rank = m->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    const std::scoped_lock guard(lock());
    std::shared_ptr<member> m;
    if (const ncclResult_t found = find(comm, m); found != ncclSuccess) return found;
    *count = m->all->size;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclSystemError:
            return "unhandled system error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "internal error";
    }
}
const char* ncclGetLastError(ncclComm_t comm) {
    const std::scoped_lock guard(lock());
    thread_local std::string text;
    std::shared_ptr<member> m;
    text = comm && find(comm, m, false) == ncclSuccess ? m->why : the_library().trouble;
    return text.c_str();
}

ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (depth == 0) return ncclInvalidUsage;
    if (--depth > 0) return ncclSuccess;
    const std::scoped_lock guard(lock());
    const auto calls = std::exchange(grouped, {});
    if (const ncclResult_t error = std::exchange(group_error, ncclSuccess); error != ncclSuccess) return error;
    std::vector<std::pair<std::shared_ptr<member>, cudaStream_t>> where;
    for (const auto& c : calls)
        if (std::ranges::find(where, std::pair(c.m, c.stream)) == where.end()) where.emplace_back(c.m, c.stream);
    ncclResult_t result = ncclSuccess;
    for (const auto& one_place : where) {
        const std::shared_ptr<member> m = one_place.first;
        const cudaStream_t stream = one_place.second;
        std::vector<part_pointer> parts;
        for (const auto& c : calls)
            if (c.m == m && c.stream == stream) parts.push_back(c.what);
        const ncclResult_t one = answer(m, [m, stream, parts] {
            enqueue(m, stream, parts);
            return true;
        });
        if (one != ncclSuccess) result = one;
    }
    return result;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "send", .from = static_cast<const char*>(from), .count = count, .type = type, .peer = peer});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "receive", .to = static_cast<char*>(to), .count = count, .type = type, .peer = peer});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "all-reduce",
                 .from = static_cast<const char*>(from),
                 .to = static_cast<char*>(to),
                 .count = count,
                 .type = type,
                 .operation = operation});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "reduce",
                 .from = static_cast<const char*>(from),
                 .to = static_cast<char*>(to),
                 .count = count,
                 .type = type,
                 .operation = operation,
                 .root = root});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "broadcast",
                 .from = static_cast<const char*>(from),
                 .to = static_cast<char*>(to),
                 .count = count,
                 .type = type,
                 .root = root});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "reduce-scatter",
                 .from = static_cast<const char*>(from),
                 .to = static_cast<char*>(to),
                 .count = count,
                 .type = type,
                 .operation = operation},
                true);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return call(comm, stream,
                {.kind = "all-gather",
                 .from = static_cast<const char*>(from),
                 .to = static_cast<char*>(to),
                 .count = count,
                 .type = type},
                true);
}
