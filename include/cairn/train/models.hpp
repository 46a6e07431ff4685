#pragma once
// Networks by their names in a workload file: [model] kind = mlp | residual-mlp | lenet | autoencoder | resnet-cifar |
// resnet | cosmoflow | map-cnn | cnn | transformer | transformer-xl | unet | gcn, or what another header enters
// (register_model).
// Where ranks share layers, model_ends::over says which: transformer, resnet and cosmoflow are then made of layers
// whose tensors are cut, cosmoflow also of layers whose samples are.

#include <cairn/models/autoencoder.hpp>
#include <cairn/models/cnn.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/gcn.hpp>
#include <cairn/models/lenet.hpp>
#include <cairn/models/map_cnn.hpp>
#include <cairn/models/mlp.hpp>
#include <cairn/models/residual_mlp.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/models/transformer_xl.hpp>
#include <cairn/models/unet.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>
#include <cairn/train/shared_layers.hpp>

#include <string>
#include <vector>

namespace cairn {

/// The ends of a network: the shape of a sample, and the number of outputs for each.
struct model_ends {
    shape sample;
    index_t outputs;
    shared_layers over = {};                                   // the ranks that share its layers
    std::shared_ptr<const csr_matrix<float>> graph = nullptr;  // whose nodes a sample is, if it is one

    /// Throws unless samples have this number of axes.
    void need_axes(const char* model, int axes, const char* names) const {
        require(sample.rank() == axes, "model ", model, " takes samples ", names, ", the data have ", sample);
    }
};

template <Device D, class T>
using models = registry<sequential<T, D> (*)(configuration&, const model_ends&)>;

/// Enters a network. Entry: `name`; make<T, D>(configuration&, model_ends), a sequential<T, D>.
template <class Entry, class... Targets>
struct register_model {
    register_model() { (enter<typename Targets::device, typename Targets::number>(), ...); }

private:
    template <Device D, class T>
    static void enter() {
        models<D, T>::global().add(Entry::name, typeid(Entry), &Entry::template make<T, D>);
    }
};
template <class Entry>
struct register_model<Entry, entered_elsewhere> {};

namespace detail {

/// Values of a layer: beyond, its weights fit into no memory.
inline constexpr interval layer_width = from_to(1, 1 << 20);

/// inputs, hidden…
inline std::vector<index_t> widths_of(configuration& settings, index_t inputs, std::vector<std::int64_t> hidden) {
    std::vector<index_t> widths{inputs};
    for (std::int64_t width : settings.get("model.hidden", std::move(hidden), layer_width)) widths.push_back(width);
    return widths;
}

struct mlp_entry {
    static constexpr const char* name = "mlp";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        std::vector<index_t> sizes = widths_of(settings, ends.sample.size(), {256, 256});
        sizes.push_back(ends.outputs);
        return mlp<T, D>(sizes, activation::relu, settings.get("model.dropout", 0.0, from_below(0, 1)));
    }
};

struct residual_mlp_entry {
    static constexpr const char* name = "residual-mlp";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        residual_mlp_config c{.inputs = ends.sample.size(), .outputs = ends.outputs};
        c.width = settings.get("model.width", c.width, layer_width);
        c.blocks = settings.get("model.blocks", c.blocks, from_to(0, 1000));
        c.dropout = settings.get("model.dropout", c.dropout, from_below(0, 1));
        c.linear_path = settings.get("model.linear_path", c.linear_path);
        return residual_mlp<T, D>(c);
    }
};

struct autoencoder_entry {
    static constexpr const char* name = "autoencoder";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        return autoencoder<T, D>(widths_of(settings, ends.sample.size(), {1000, 500, 250, 30}));
    }
};

struct transformer_entry {
    static constexpr const char* name = "transformer";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 1, "(length)");
        transformer_config c{.vocab_size = ends.outputs, .max_length = ends.sample[0]};
        c.embedding_dim = settings.get("model.embedding_dim", c.embedding_dim, layer_width);
        c.heads = settings.get("model.heads", c.heads, from_to(1, 1024));
        c.blocks = settings.get("model.blocks", c.blocks, from_to(1, 1000));
        c.ffn_dim = settings.get("model.ffn_dim", c.ffn_dim, from_to(0, layer_width.most));
        c.dropout = settings.get("model.dropout", c.dropout, from_below(0, 1));
        c.attention_dropout = settings.get("model.attention_dropout", c.attention_dropout, from_below(0, 1));
        c.tied = settings.get("model.tied_embedding", c.tied);
        if (ends.over.tensor)
            return transformer<T, D>(
                c, tensor_transformer_parts<T, any_communicator, D>{ends.over.tensor, ends.over.sequences});
        return transformer<T, D>(c);
    }
};

struct transformer_xl_entry {
    static constexpr const char* name = "transformer-xl";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 1, "(length)");
        transformer_xl_config c{.vocab_size = ends.outputs};
        c.embedding_dim = settings.get("model.embedding_dim", c.embedding_dim, layer_width);
        c.heads = settings.get("model.heads", c.heads, from_to(1, 1024));
        c.blocks = settings.get("model.blocks", c.blocks, from_to(1, 1000));
        c.ffn_dim = settings.get("model.ffn_dim", c.ffn_dim, from_to(0, layer_width.most));
        c.dropout = settings.get("model.dropout", c.dropout, from_below(0, 1));
        c.tied = settings.get("model.tied_embedding", c.tied);
        c.memory = settings.get("model.memory_length", c.memory, from_to(0, layer_width.most));
        require(c.memory == 0 || settings.get("data.stream", false), "model.memory_length = ", c.memory,
                ": without data.stream = true no sample continues one before; set that, or leave the memory out");
        return transformer_xl<T, D>(c);
    }
};

struct cosmoflow_entry {
    static constexpr const char* name = "cosmoflow";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 4, "(D, H, W, C)");
        cosmoflow_config c{.size = ends.sample[0], .channels = ends.sample.back()};
        c.filters = settings.get("model.filters", c.filters, layer_width);
        c.blocks = settings.get("model.blocks", c.blocks, from_to(1, 10));
        c.outputs = ends.outputs;
        c.dropout = settings.get("model.dropout", c.dropout, from_below(0, 1));
        c.first_kernel = settings.get("model.first_kernel", c.first_kernel, from_to(1, 31));
        c.first_stride = settings.get("model.first_stride", c.first_stride, from_to(1, 31));
        c.normalise = settings.get("model.normalise", c.normalise);
        if (ends.over.is_shared()) return shared<T, D>(c, ends);
        return cosmoflow<T, D>(c);
    }

private:
    template <class T, Device D>
    static sequential<T, D> shared(const cosmoflow_config& c, const model_ends& ends) {
        using C = any_communicator;
        const auto& [tensor, sequences, spatial, extents] = ends.over;
        if (!spatial) return cosmoflow<T, D>(c, channel_cosmoflow_parts<T, C, D>{tensor});
        const shape rows = ends.over.rows_of(ends.sample);
        if (!tensor) return cosmoflow<T, D>(c, spatial_parts<C, T, D>(*spatial, ends.over.grid(), rows));
        using parts = spatial_parts<C, T, D, make_channel_conv<T, C, D>>;
        return cosmoflow<T, D>(c, parts(*spatial, ends.over.grid(), rows, {tensor}));
    }
};

struct lenet_entry {
    static constexpr const char* name = "lenet";
    template <class T, Device D>
    static sequential<T, D> make(configuration&, const model_ends& ends) {
        ends.need_axes(name, 3, "(H, W, C)");
        return lenet<T, D>(ends.outputs);
    }
};

struct map_cnn_entry {
    static constexpr const char* name = "map-cnn";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 3, "(H, W, C)");
        map_cnn_config c{.in_channels = ends.sample.back(), .outputs = ends.outputs};
        if (const auto filters = settings.get("model.filters", std::vector<std::int64_t>{16, 32, 64, 64}, layer_width);
            !filters.empty())
            c.filters.assign(filters.begin(), filters.end());
        return map_cnn<T, D>(c);
    }
};

struct cnn_entry {
    static constexpr const char* name = "cnn";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        require(ends.sample.rank() >= 1 && ends.sample.rank() <= 4, "model ", name,
                " takes samples (W), (W, C), (H, W, C) or (D, H, W, C), the data have ", ends.sample);
        cnn_config c{.outputs = ends.outputs};
        const auto widths = [&](const char* setting, std::vector<std::int64_t> usual) {
            const auto given = settings.get(setting, std::move(usual), layer_width);
            return std::vector<index_t>(given.begin(), given.end());
        };
        c.filters = widths("model.filters", {8});
        c.hidden = widths("model.hidden", {});
        c.kernel = settings.get("model.kernel", c.kernel, from_to(1, 64));
        c.stride = settings.get("model.stride", c.stride, from_to(1, 64));
        c.pool = settings.get("model.pool", c.pool, from_to(1, 64));
        c.global_pool = settings.get("model.global_pool", c.global_pool);
        c.dropout = settings.get("model.dropout", c.dropout, from_below(0, 1));
        return cnn<T, D>(ends.sample, c);
    }
};

struct unet_entry {
    static constexpr const char* name = "unet";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        require(ends.sample.rank() == 3 || ends.sample.rank() == 4, "model ", name,
                " takes samples (H, W, C) or (D, H, W, C), the data have ", ends.sample);
        unet_config c{.channels = ends.sample.back(), .classes = ends.outputs, .dims = ends.sample.rank() - 1};
        c.filters = settings.get("model.filters", c.filters, layer_width);
        c.levels = settings.get("model.levels", c.levels, from_to(1, 10));
        c.normalise = settings.get("model.normalise", true);
        c.group_norms = settings.choice("model.norm", {"batch", "group"}, "batch") == "group";
        c.interpolate = settings.choice("model.upsample", {"transposed", "linear"}, "transposed") == "linear";
        for (const auto axis : settings.get("model.periodic_axes", std::vector<std::int64_t>{}, from_to(0, c.dims - 1)))
            c.periodic[static_cast<std::size_t>(axis)] = true;
        for (int axis = 0; axis < c.dims; ++axis)
            require(ends.sample[axis] % c.factor() == 0, "model.levels = ", c.levels, ": samples of shape ",
                    ends.sample, " cannot be halved that often; take sizes that are multiples of ", c.factor(),
                    " (data.segmentation.size), or fewer levels");
        return unet<T, D>(c);
    }
};

struct gcn_entry {
    static constexpr const char* name = "gcn";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 2, "(nodes, features)");
        require(ends.graph != nullptr, "model ", name, " needs a graph, the data have none; take data.format = graph");
        gcn_config c{.features = ends.sample[1], .classes = ends.outputs};
        c.hidden = settings.get("model.hidden", c.hidden, layer_width);
        c.dropout = settings.get("model.dropout", c.dropout, from_below(0, 1));
        c.graph = graph_operator::normalised(*ends.graph);
        return gcn<T, D>(c);
    }
};

template <class T, Device D>
sequential<T, D> resnet_of(configuration& settings, resnet_config c, const shared_layers& over) {
    c.zero_init_residual = settings.get("model.zero_init_residual", c.zero_init_residual);
    if (over.tensor) return resnet<T, D>(std::move(c), channel_resnet_parts<T, any_communicator, D>{over.tensor});
    return resnet<T, D>(std::move(c));
}

struct resnet_cifar_entry {
    static constexpr const char* name = "resnet-cifar";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 3, "(H, W, C)");
        return resnet_of<T, D>(
            settings, resnet_cifar_config(settings.get("model.depth", 20, from_to(8, 2000)), ends.outputs), ends.over);
    }
};

struct resnet_entry {
    static constexpr const char* name = "resnet";
    template <class T, Device D>
    static sequential<T, D> make(configuration& settings, const model_ends& ends) {
        ends.need_axes(name, 3, "(H, W, C)");
        const std::string form = settings.choice("model.form", {"cifar", "imagenet"}, "imagenet");
        return resnet_of<T, D>(
            settings,
            resnet_config_of(settings.get("model.depth", 18, from_to(18, 50)),
                             form == "cifar" ? resnet_config::stem::cifar : resnet_config::stem::imagenet,
                             ends.outputs),
            ends.over);
    }
};

static const register_model<mlp_entry, CAIRN_TARGETS> mlp_is_known;
static const register_model<residual_mlp_entry, CAIRN_TARGETS> residual_mlp_is_known;
static const register_model<lenet_entry, CAIRN_TARGETS> lenet_is_known;
static const register_model<autoencoder_entry, CAIRN_TARGETS> autoencoder_is_known;
static const register_model<resnet_cifar_entry, CAIRN_TARGETS> resnet_cifar_is_known;
static const register_model<resnet_entry, CAIRN_TARGETS> resnet_is_known;
static const register_model<cosmoflow_entry, CAIRN_TARGETS> cosmoflow_is_known;
static const register_model<map_cnn_entry, CAIRN_TARGETS> map_cnn_is_known;
static const register_model<cnn_entry, CAIRN_TARGETS> cnn_is_known;
static const register_model<transformer_entry, CAIRN_TARGETS> transformer_is_known;
static const register_model<transformer_xl_entry, CAIRN_TARGETS> transformer_xl_is_known;
static const register_model<unet_entry, CAIRN_TARGETS> unet_is_known;
static const register_model<gcn_entry, CAIRN_TARGETS> gcn_is_known;

}  // namespace detail

/// The network that the settings name, on device D, computing in T, for samples of shape `sample` and `outputs` numbers
/// a sample, which lie on `graph` where there is one. Throws where it is not made to be shared by the ranks of `over`.
template <Device D = cpu, class T = float>
sequential<T, D> make_model(configuration& settings, const shape& sample, index_t outputs,
                            const shared_layers& over = {}, std::shared_ptr<const csr_matrix<float>> graph = nullptr) {
    const std::string kind = settings.need<std::string>("model.kind");
    require(models<D, T>::global().contains(kind) || !models<cpu, float>::global().contains(kind),
            "model.kind = ", kind,
            " is entered for train.device = cpu and train.precision = float32 alone; set those, or enter it for more "
            "(CAIRN_TARGETS in train/registry.hpp)");
    sequential<T, D> model =
        models<D, T>::global().at("model.kind", kind)(settings, {sample, outputs, over, std::move(graph)});
    const auto is_cut = [](const auto& p) { return !p.p->layout.is_whole(); };
    require(!over.tensor || std::ranges::any_of(model.parameters(), is_cut), "parallel.tensor: model.kind = ", kind,
            " has no layer whose tensors are cut; transformer, resnet, resnet-cifar and cosmoflow have. Set "
            "parallel.tensor = 1");
    require(!over.spatial || deals_out_samples(model, over, sample), "parallel.spatial: model.kind = ", kind,
            " is not made for samples that are cut in space; cosmoflow is. Leave parallel.spatial out");
    return model;
}

}  // namespace cairn
