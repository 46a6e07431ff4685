// Your compressors, with your error feedback, in the program train, as compress.kind = "student". README.md has the
// commands.

#include <cairn/train/compressors.hpp>

#include "feedback.hpp"
#include "powersgd.hpp"
#include "sign.hpp"
#include "topk.hpp"

#include <memory>
#include <string>
#include <vector>

namespace {

using cairn::any_communicator;

/// What the library asks for (cairn/parallel/comm_hook.hpp): the sum over the ranks in place of each rank's gradients.
/// Yours gives the mean. Residuals are inside of your error_feedback, so a run's saved state has none of them: one that
/// is resumed begins with residuals of zero.
template <class Method>
class student_hook final : public cairn::comm_hook<any_communicator> {
public:
    /// `piece` makes the method for parameters that the bucket holds, one after another; each has feedback of its own.
    template <class Piece>
    student_hook(const cairn::bucket_layout& pieces, Piece piece) {
        for (const cairn::bucket_slice& s : pieces)
            pieces_.push_back({static_cast<std::size_t>(s.offset), static_cast<std::size_t>(s.shape.size()),
                               student::error_feedback<Method>(piece(s))});
    }

    std::string name() const override { return "student"; }

    cairn::exchange_cost reduce(any_communicator& c, std::span<float> gradient, const cairn::encode_step&) override {
        cairn::stopwatch clock;
        std::vector<float> mean;
        for (auto& [begin, count, method] : pieces_) {
            const std::span<float> here = gradient.subspan(begin, count);
            mean.resize(count);
            method.reduce(c, here, std::span<float>(mean));
            for (std::size_t i = 0; i < count; ++i) here[i] = static_cast<float>(c.size()) * mean[i];
        }
        return {.communication = clock.seconds()};
    }

private:
    struct piece_of_bucket {
        std::size_t begin, count;
        student::error_feedback<Method> method;
    };
    std::vector<piece_of_bucket> pieces_;
};

/// A message of the whole bucket: one piece.
template <class Method>
cairn::any_hook<cairn::cpu> messages(const cairn::bucket_place& at, Method method) {
    const cairn::bucket_layout whole{{"bucket", 0, {at.n}}};
    return std::make_unique<student_hook<Method>>(whole, [&](const cairn::bucket_slice&) { return method; });
}

/// A matrix for each parameter, (out, rest) as in the library. A bias has one column, and is sent as it is.
cairn::any_hook<cairn::cpu> low_rank(const cairn::bucket_place& at, std::size_t rank) {
    return std::make_unique<student_hook<student::powersgd>>(at.layout, [&](const cairn::bucket_slice& s) {
        const auto rows = static_cast<std::size_t>(s.shape[0]), size = static_cast<std::size_t>(s.shape.size());
        return student::powersgd(rows, size / rows, rank, static_cast<std::uint64_t>(s.offset));
    });
}

struct entry {
    static constexpr const char* name = "student";

    template <std::same_as<cairn::cpu> D>
    static cairn::reduction_method<D> make(cairn::configuration& settings) {
        const std::string method = settings.choice("compress.method", {"topk", "sign", "powersgd"}, "topk");
        if (method == "sign")
            return {cairn::exchange::all_gather,
                    [](const cairn::bucket_place& at) { return messages(at, student::sign{}); }};
        if (method == "powersgd") {
            const int rank = settings.get("compress.rank", 2, cairn::from_to(1, 1024));
            return {cairn::exchange::all_reduce,
                    [=](const cairn::bucket_place& at) { return low_rank(at, static_cast<std::size_t>(rank)); }};
        }
        const double ratio = settings.get("compress.ratio", 0.01, cairn::above_to(0, 1));
        return {cairn::exchange::all_gather,
                [=](const cairn::bucket_place& at) { return messages(at, student::topk{ratio}); }};
    }
};

const cairn::register_compressor<entry> is_known;

}  // namespace
