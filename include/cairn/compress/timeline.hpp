#pragma once
// What a step costs whose gradients are reduced bucket by bucket: the model behind the governor's decisions.
//   compute     is stretched by the encodes before it; bucket k is ready at r_k + Σ_{j ≤ k} encode_j
//   the link    carries one bucket at a time, in order:   end_k = max(end_{k−1}, ready_k) + communication_k
//   the step    ends when all is decoded:                 max(compute_end + Σ encode, end_last) + Σ decode
// Exposed communication is what the link still does after compute has ended. Encode and decode are charged in full.
// For one bucket that is all exposed, t = communication, and a message that is R times smaller, the compressed step is the
// shorter one exactly if  t_encode + t_decode < (1 − 1/R) t : the break-even rule.

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
    double exposed = 0;  // of these, those in which only the link works
};

/// The model above. Buckets in the order in which they are sent; compute_end and ready without any encode.
inline step_prediction predict_step(std::span<const bucket_times> buckets, double compute_end) {
    double encoded = 0, decoded = 0, link = 0;
    for (const bucket_times& b : buckets) {
        encoded += b.encode;
        decoded += b.decode;
        link = std::max(link, b.ready + encoded) + b.communication;
    }
    const double computed = compute_end + encoded;
    return {std::max(computed, link) + decoded, std::max(0.0, link - computed)};
}

}  // namespace cairn
