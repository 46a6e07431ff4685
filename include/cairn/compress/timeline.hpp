#pragma once
// Time of a step whose gradients are reduced bucket by bucket: the model behind the compression autotuner's decisions.
// One thread concurrent with compute encodes, exchanges and decodes, bucket after bucket:
//   start_k = max(end_{k−1}, r_k)     end_k = start_k + encode_k + communication_k + decode_k
//   step    = max(compute_end, end_last)
// Encoding and decoding of buckets that start before compute has ended take time from compute: compute_end, and the
// times r at which later buckets are ready, move by as much. (Right if threads share cores, conservative otherwise.)
// For one bucket that is all exposed, t = communication, and a message that is R times smaller, the compressed step is
// the shorter one exactly if  t_encode + t_decode < (1 − 1/R) t : the break-even rule.

#include <algorithm>
#include <span>

namespace cairn {

/// Seconds of one bucket.
struct bucket_times {
    double ready = 0;          // from the start of the step until backward has its gradients
    double encode = 0;         // 0 for dense
    double communication = 0;  // of its turn on the link: without waiting for earlier buckets
    double decode = 0;         // 0 for dense
};

struct step_prediction {
    double seconds = 0;  // from the start of the step until the last bucket is decoded
    double exposed = 0;  // of these, those after compute has ended
};

/// The model above. Buckets in the order in which they are sent; compute_end and ready as in a dense step.
inline step_prediction predict_step(std::span<const bucket_times> buckets, double compute_end) {
    double stolen = 0, end = 0;
    for (const bucket_times& b : buckets) {
        const double start = std::max(end, b.ready + stolen);
        end = start + b.encode + b.communication + b.decode;
        if (start < compute_end + stolen) stolen += b.encode + b.decode;
    }
    const double computed = compute_end + stolen;
    return {std::max(computed, end), std::max(0.0, end - computed)};
}

}  // namespace cairn
