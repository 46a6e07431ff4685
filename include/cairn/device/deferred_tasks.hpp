#pragma once
// Tasks whose results are used some steps later: decompositions of second-order methods. The host makes them on a
// thread beside training (cpu/deferred_tasks.hpp); a grid device, which runs launches in one order, in shares over the
// steps until their use (grid/deferred_tasks.hpp).
//   begin(costs, make)   make(i) makes number i, of cost costs[i]; the numbers of operations, say
//   make_now()           all of them, before it returns
//   make_later()         they are to be made until finish()
//   make_share(share)    called in each step: so much of all costs should be made now
//   finish()             waits for all; throws what one of them threw
//   close()              the same, and forgets them
//   resume()             after a checkpoint was read between make_later() and close(): goes on as that run did

#include <cairn/core/tensor.hpp>

namespace cairn {

template <Device D>
class deferred_tasks;

}  // namespace cairn
