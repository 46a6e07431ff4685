// What the tests may call. Methods and optimizers that live from call to call have a number, `which`.

#include "worker.hpp"

#include "adapter_methods.hpp"

#include "cost.hpp"
#include "feedback.hpp"
#include "powersgd.hpp"
#include "sign.hpp"
#include "topk.hpp"

#include <map>
#include <memory>

#define MEMBERS(type, ...)                                        \
    template <>                                                   \
    struct lab::members<type> {                                   \
        static auto of(auto& s) { return std::tie(__VA_ARGS__); } \
    }
MEMBERS(student::traffic, s.messages, s.bytes);
MEMBERS(student::link, s.alpha, s.bandwidth);
MEMBERS(student::method, s.sends, s.compute);

namespace {

using lab::serve;
using floats = std::vector<float>;
std::map<int, student::powersgd> low_rank;

student::topk top(double ratio) {
    student::topk method;
    method.ratio = ratio;
    return method;
}
/// Decoded into what held something else before.
template <class Method>
floats decoded(const Method& method, const lab::bytes& message, std::size_t n) {
    floats into(n, 9.0f);
    method.decode(message, std::span<float>(into));
    return into;
}
/// body(method) with the method of this name.
template <class Body>
auto with_method(const std::string& name, Body&& body) {
    if (name == "sign") return body(student::sign{});
    if (name == "eighths") return body(lab::eighths{});
    if (name == "halves") return body(lab::halves{});
    return body(lab::quarters{});
}

/// error_feedback of any method.
struct with_feedback {
    virtual ~with_feedback() = default;
    virtual std::pair<floats, floats> reduce(lab::communicator& c, const floats& gradient) = 0;
};
template <class Method>
struct feedback_of : with_feedback {
    student::error_feedback<Method> kept;

    explicit feedback_of(Method method) : kept(std::move(method)) {}
    std::pair<floats, floats> reduce(lab::communicator& c, const floats& gradient) override {
        floats mean(gradient.size());
        kept.reduce(c, std::span<const float>(gradient), std::span<float>(mean));
        const std::span<const float> e = kept.residual();
        return {mean, floats(e.begin(), e.end())};
    }
};
std::map<int, std::unique_ptr<with_feedback>> feedbacks;

const bool served[] = {
    serve("topk::count", [](double ratio, std::size_t n) { return top(ratio).count(n); }),
    serve("topk::contraction", [](double ratio, std::size_t n) { return top(ratio).contraction(n); }),
    serve("topk::encode", [](double ratio, floats x) { return top(ratio).encode(x); }),
    serve("topk::decode",
          [](double ratio, lab::bytes message, std::size_t n) { return decoded(top(ratio), message, n); }),
    serve("sign::bytes", [](std::size_t n) { return student::sign{}.bytes(n); }),
    serve("sign::contraction", [](floats x) { return student::sign{}.contraction(x); }),
    serve("sign::encode", [](floats x) { return student::sign{}.encode(x); }),
    serve("sign::decode", [](lab::bytes message, std::size_t n) { return decoded(student::sign{}, message, n); }),
    serve("orthonormalise",
          [](std::size_t count, std::size_t length, floats rows) {
              student::orthonormalise(count, length, rows);
              return rows;
          }),
    serve("powersgd",
          [](lab::communicator&, int which, std::size_t rows, std::size_t cols, std::size_t rank, std::uint64_t seed) {
              low_rank.insert_or_assign(which, student::powersgd(rows, cols, rank, seed));
          }),
    serve("powersgd::reduce",
          [](lab::communicator& c, int which, floats m) {
              floats mean(m.size(), 9.0f);
              low_rank.at(which).reduce(c, std::span<const float>(m), std::span<float>(mean));
              return mean;
          }),
    serve("reduce_mean",  // the mean, and what this rank sent
          [](lab::communicator& c, std::string method, floats x) {
              return with_method(method, [&](auto m) {
                  floats mean(x.size(), 9.0f), sent = mean;
                  student::reduce_mean(c, m, std::span<const float>(x), std::span<float>(mean), std::span<float>(sent));
                  return std::pair(mean, sent);
              });
          }),
    serve("error_feedback",
          [](lab::communicator&, int which, std::string method) {
              with_method(method, [&](auto m) { feedbacks[which] = std::make_unique<feedback_of<decltype(m)>>(m); });
          }),
    serve("error_feedback::reduce",  // the mean, and the residual
          [](lab::communicator& c, int which, floats gradient) { return feedbacks.at(which)->reduce(c, gradient); }),
    serve("ring_traffic", [](int p, double bytes) { return student::ring_traffic(p, bytes); }),
    serve("gather_traffic", [](int p, double bytes) { return student::gather_traffic(p, bytes); }),
    serve("powersgd_traffic",
          [](int p, double rows, double cols, double rank) { return student::powersgd_traffic(p, rows, cols, rank); }),
    serve("seconds", [](student::method m, student::link l) { return student::seconds(m, l); }),
    serve("break_even", [](student::method dense, student::method compressed,
                           double alpha) { return student::break_even(dense, compressed, alpha); }),
    serve("best", [](std::vector<student::method> methods,
                     student::link l) { return student::best(std::span<const student::method>(methods), l); }),
};

}  // namespace
