"""Descent on (θ₀² + 100 θ₁²) / 2 from (1, 1), each with its best learning rate, without and with momentum."""

from style import BLUE, ORANGE, plt, save

CURVATURE = (1.0, 100.0)


def descend(lr, momentum, steps):
    theta, velocity, path = [1.0, 1.0], [0.0, 0.0], []
    for _ in range(steps + 1):
        path.append(tuple(theta))
        for i, c in enumerate(CURVATURE):
            velocity[i] = momentum * velocity[i] + c * theta[i]
            theta[i] -= lr * velocity[i]
    return path


figure, (plane, losses) = plt.subplots(1, 2, figsize=(7.4, 3))
for name, colour, lr, momentum in (("η = 0.0198, μ = 0", ORANGE, 2 / 101, 0), ("η = 0.0331, μ = 0.669", BLUE, 4 / 121, 81 / 121)):
    path = descend(lr, momentum, 150)
    plane.plot([p[0] for p in path[:26]], [p[1] for p in path[:26]], "o-", markersize=2.5, linewidth=0.9, color=colour)
    losses.semilogy([sum(c * t * t for c, t in zip(CURVATURE, p)) / 2 for p in path], color=colour, label=name)
plane.axhline(0, color="#BBBBBB", linewidth=0.6, zorder=0)
plane.set_xlabel("θ₀, curvature 1")
plane.set_ylabel("θ₁, curvature 100")
plane.set_title("25 steps")
losses.set_xlabel("step")
losses.set_ylabel("f")
losses.set_ylim(1e-12, 2000)
losses.legend(fontsize=8)
save(figure)
