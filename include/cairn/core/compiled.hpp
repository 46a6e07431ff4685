#pragma once
// Templates that nearly every program uses may be compiled once instead of in each of its files. CMake's target
// cairn::compiled holds the code and defines CAIRN_COMPILED for targets that link it. Without it everything stays in
// headers, and these macros are empty.
//
//   CAIRN_COMPILED_ONCE(part, class x<float>)   declares it: extern template class x<float>; in the file of this part,
//                                               where CAIRN_COMPILED_part is nothing, defines it
//   CAIRN_COMPILED_CLASS(x)                     class x<float, cpu> and class x<double, cpu>
//   CAIRN_COMPILED_OPTIMIZER(o)                 class bound_optimizer<o> for both
//
// To be used inside namespace cairn, after the template. The parts are listed in .cmake/cairn-compiled.cmake.

#ifdef CAIRN_COMPILED

#ifndef CAIRN_COMPILED_layers_float
#define CAIRN_COMPILED_layers_float extern
#endif
#ifndef CAIRN_COMPILED_layers_double
#define CAIRN_COMPILED_layers_double extern
#endif
#ifndef CAIRN_COMPILED_networks
#define CAIRN_COMPILED_networks extern
#endif
#ifndef CAIRN_COMPILED_optimizers
#define CAIRN_COMPILED_optimizers extern
#endif
#define CAIRN_COMPILED_ONCE(part, ...) CAIRN_COMPILED_##part template __VA_ARGS__;

#else

#define CAIRN_COMPILED_ONCE(part, ...)

#endif

#define CAIRN_COMPILED_CLASS(name)                            \
    CAIRN_COMPILED_ONCE(layers_float, class name<float, cpu>) \
    CAIRN_COMPILED_ONCE(layers_double, class name<double, cpu>)
#define CAIRN_COMPILED_OPTIMIZER(name)                                       \
    CAIRN_COMPILED_ONCE(optimizers, class bound_optimizer<name, float, cpu>) \
    CAIRN_COMPILED_ONCE(optimizers, class bound_optimizer<name, double, cpu>)
