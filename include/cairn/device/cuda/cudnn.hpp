#pragma once
// cuDNN's graph interface: descriptors that are made, given attributes, and finalised; operations make a graph, a graph
// has engine configurations, a configuration makes a plan, a plan runs on pointers. Graphs of convolutions:
// cudnn_convolution.hpp; of attention: cudnn_attention.hpp. The one place that includes cuDNN.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/device/cuda/runtime.hpp>

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cairn::cudnn {

/// That cuDNN does not compute something, as other than that it is installed badly or has failed.
class refusal : public error {
public:
    using error::error;
};

/// Whether a status says that there is no such kernel. cuDNN's own word for a library that does not load, or that the
/// driver is too old for, is "not supported" as well: that is a failure.
inline bool refuses(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER ||
        status == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART ||
        status == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)
        return false;
    const int category = CUDNN_STATUS_CATEGORY(static_cast<int>(status));
    return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

template <class... What>
void check(cudnnStatus_t status, const What&... what) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    std::array<char, 512> said{};
    cudnnGetLastErrorString(said.data(), said.size());
    const std::string text =
        concat("cuDNN: ", what..., ": ", cudnnGetErrorString(status), said[0] ? concat(" (", said.data(), ')') : "");
    if (refuses(status)) throw refusal(text);
    fail(text);
}

/// Of the calling thread, on its stream.
inline cudnnHandle_t handle() {
    thread_local const auto mine = [] {
        require(cudnnGetVersion() >= 90000, "cuDNN: version ", cudnnGetVersion(),
                " is installed, 9.0 (90000) is needed");
        return cuda::library_handle<cudnnHandle_t>(cudnnCreate, cudnnSetStream,
                                                   [](cudnnStatus_t s, const char* what) { check(s, what); });
    }();
    return mine;
}

/// Owns one descriptor, and those that were set as its attributes: cuDNN does not say that it copies them.
class descriptor {
public:
    explicit descriptor(cudnnBackendDescriptorType_t type) {
        cudnnBackendDescriptor_t raw = nullptr;
        check(cudnnBackendCreateDescriptor(type, &raw), "making a descriptor of type ", static_cast<int>(type));
        owned_ = std::make_shared<owned>(raw);
    }

    cudnnBackendDescriptor_t get() const { return owned_->raw; }

    template <class V>
    descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V* values,
                    std::size_t count) {
        check(cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(count), values),
              "setting attribute ", static_cast<int>(name));
        return *this;
    }
    template <class V>
    descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const V& value) {
        return set(name, type, &value, 1);
    }
    descriptor& set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
        return set(name, CUDNN_TYPE_INT64, values.data(), values.size());
    }
    descriptor& set(cudnnBackendAttributeName_t name, const descriptor& other) {
        return set(name, std::span<const descriptor>(&other, 1));
    }
    descriptor& set(cudnnBackendAttributeName_t name, std::span<const descriptor> others) {
        std::vector<cudnnBackendDescriptor_t> raw;
        for (const descriptor& other : others) {
            raw.push_back(other.get());
            owned_->parts.push_back(other.owned_);
        }
        return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), raw.size());
    }

    descriptor& finalise(const char* what) {
        check(cudnnBackendFinalize(get()), what);
        return *this;
    }

private:
    struct owned {
        explicit owned(cudnnBackendDescriptor_t d) : raw(d) {}
        owned(const owned&) = delete;
        ~owned() { cudnnBackendDestroyDescriptor(raw); }
        cudnnBackendDescriptor_t raw;
        std::vector<std::shared_ptr<owned>> parts;
    };
    std::shared_ptr<owned> owned_;
};

template <class T>
constexpr cudnnDataType_t data_type() {
    if constexpr (std::is_same_v<T, double>)
        return CUDNN_DATA_DOUBLE;
    else if constexpr (std::is_same_v<T, float>)
        return CUDNN_DATA_FLOAT;
    else if constexpr (std::is_same_v<T, float16>)
        return CUDNN_DATA_HALF;
    else {
        static_assert(std::is_same_v<T, bfloat16>);
        return CUDNN_DATA_BFLOAT16;
    }
}

/// Where the numbers of a tensor of a graph are: in memory that the plan is given, nowhere but on the chip, or with the
/// host, one number.
enum class tensor_place { memory, chip, host };

inline constexpr std::int64_t alignment = 16;  // of the tensors of a plan, in bytes

/// Whether plans take these addresses.
template <class... Address>
bool aligned(const Address*... at) {
    return ((reinterpret_cast<std::uintptr_t>(at) % alignment == 0) && ...);
}

inline descriptor describe_tensor(std::int64_t id, cudnnDataType_t type, const std::vector<std::int64_t>& sizes,
                                  const std::vector<std::int64_t>& steps, tensor_place place) {
    descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const bool yes = true;
    d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, steps)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    if (place == tensor_place::chip) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, yes);
    if (place == tensor_place::host) d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, yes);
    return d.finalise("describing a tensor");
}

/// A graph of operations, in the order in which they run; h: null where no GPU is there yet.
inline descriptor graph_of(std::span<const descriptor> operations, cudnnHandle_t h = handle()) {
    descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (h) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, h);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
    return graph.finalise("making a graph");
}

/// Numbers of the tensors of a convolution in its graph: its three, the bias, and its sums before they are rounded,
/// which stay on the chip.
enum tensor_id : std::int64_t { id_x = 'x', id_w = 'w', id_y = 'y', id_bias = 'b', id_sums = 's' };

/// Whether an engine is what training wants: the same bits every time, and float in float, also its sums, unless TF32
/// is asked for.
inline bool acceptable(const descriptor& configuration, bool tensor_cores) {
    descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = engine.get();
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                   &count, &raw),
          "asking for an engine");
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
    if (cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()) != CUDNN_STATUS_SUCCESS)
        return false;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT); ++i) {
        const auto note = notes[static_cast<std::size_t>(i)];
        if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
        if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;  // through fp16, which overflows
        if (!tensor_cores &&
            (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
            return false;
    }
    return true;
}

/// A finalised plan and its workspace.
struct plan {
    descriptor execution;
    index_t workspace = 0;
    bool with_bias = false;

    /// x, w, y as in the graph: of backward they hold dx, dw, dy. The bias is read where the graph has one.
    void run(const void* x, const void* w, const void* y, const void* bias, void* scratch) const {
        const std::array<const void*, 4> pointers{x, w, y, bias};
        const std::array<std::int64_t, 4> ids{id_x, id_w, id_y, id_bias};
        const std::size_t count = with_bias ? 4 : 3;
        run({ids.data(), count}, {pointers.data(), count}, scratch, "running a convolution");
    }

    /// Tensors by their numbers: addresses on the GPU, on the host for those that are one number.
    void run(std::span<const std::int64_t> ids, std::span<const void* const> pointers, void* scratch,
             const char* what) const {
        descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(), pointers.size())
            .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), ids.size())
            .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch)
            .finalise("naming the tensors of a plan");
        check(cudnnBackendExecute(handle(), execution.get(), pack.get()), what);
    }
};

/// Plans for a graph, most promising first by cuDNN's own judgement, at most `most`; those that need too much memory
/// are left out. Throws where there is none because of something other than refusals: a library that does not load, a
/// driver that is too old.
inline std::vector<plan> plans_for(const descriptor& graph, bool with_bias, bool tensor_cores, std::size_t most,
                                   index_t most_workspace) {
    std::vector<plan> plans;
    std::optional<cudnnStatus_t> failed;
    const auto good = [&](cudnnStatus_t status) {
        if (status != CUDNN_STATUS_SUCCESS && !refuses(status)) failed = status;
        return status == CUDNN_STATUS_SUCCESS;
    };
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
        heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
            .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
        if (!good(cudnnBackendFinalize(heuristic.get()))) continue;
        std::vector<descriptor> configurations;
        std::vector<cudnnBackendDescriptor_t> raw;
        for (int i = 0; i < 24; ++i) {
            configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
            raw.push_back(configurations.back().get());
        }
        std::int64_t count = 0;
        if (!good(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()), &count,
                                           raw.data())))
            continue;
        for (std::int64_t i = 0;
             i < std::min<std::int64_t>(count, static_cast<std::int64_t>(raw.size())) && plans.size() < most; ++i) {
            const descriptor& configuration = configurations[static_cast<std::size_t>(i)];
            if (!acceptable(configuration, tensor_cores)) continue;
            plan p{descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0, with_bias};
            const cudnnHandle_t h = handle();
            p.execution.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, h)
                .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
            if (!good(cudnnBackendFinalize(p.execution.get()))) continue;  // this engine cannot after all
            std::int64_t bytes = 0;
            check(cudnnBackendGetAttribute(p.execution.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                           CUDNN_TYPE_INT64, 1, nullptr, &bytes),
                  "asking for a workspace");
            if (bytes > most_workspace) continue;
            p.workspace = bytes;
            plans.push_back(std::move(p));
        }
        if (!plans.empty()) break;
    }
    if (plans.empty() && failed) check(*failed, "looking for a plan");
    return plans;
}

}  // namespace cairn::cudnn
