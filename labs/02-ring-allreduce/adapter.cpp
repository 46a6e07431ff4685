// What the tests may call. Each rank is a process of its own; `c` is its communicator.

#include "worker.hpp"

#include "all_reduce.hpp"
#include "buckets.hpp"
#include "cost.hpp"

#include <cairn/comm/communicator.hpp>

template <>
struct lab::names<student::algorithm> {
    static constexpr std::pair<student::algorithm, const char*> all[]{
        {student::algorithm::ring, "ring"}, {student::algorithm::halving_doubling, "halving and doubling"}};
};
template <>
struct lab::members<student::link> {
    static auto of(auto& l) { return std::tie(l.alpha, l.beta, l.gamma); }
};

using floats = std::vector<float>;

const bool served[] = {
    lab::serve("ring_all_reduce",
               [](lab::communicator& c, floats data) {
                   student::ring_all_reduce(c, std::span<float>(data));
                   return data;
               }),
    lab::serve("halving_doubling_all_reduce",
               [](lab::communicator& c, floats data) {
                   student::halving_doubling_all_reduce(c, std::span<float>(data));
                   return data;
               }),
    lab::serve("reduce_gradients",
               [](lab::communicator& c, std::vector<floats> gradients, std::size_t bucket_bytes) {
                   const std::vector<std::span<float>> spans(gradients.begin(), gradients.end());
                   student::reduce_gradients(c, spans, bucket_bytes);
                   return gradients;
               }),
    lab::serve("ring_seconds", [](int p, double bytes, student::link l) { return student::ring_seconds(p, bytes, l); }),
    lab::serve("halving_doubling_seconds",
               [](int p, double bytes, student::link l) { return student::halving_doubling_seconds(p, bytes, l); }),
    lab::serve("cheaper", [](int p, double bytes, student::link l) { return student::cheaper(p, bytes, l); }),
};
