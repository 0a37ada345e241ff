"""Second derivatives of networks that are a single linear layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedcanon.objectives.losses import Loss


def single_layer(module: nn.Module) -> nn.Linear | None:
    """Return the linear layer that the module consists of, or None if it is something else.

    There may be ``nn.Flatten`` before it.
    """
    layers = [m for m in module.modules() if type(m) not in (nn.Sequential, nn.Flatten)]
    if len(layers) != 1 or type(layers[0]) is not nn.Linear:
        return None
    trained = all(parameter.requires_grad for parameter in layers[0].parameters())
    return layers[0] if trained else None


def affine_hessian(layer: nn.Linear, loss: Loss, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the Hessian of the mean loss in the layer's weights and biases, in this order.

    The loss of sample j depends on its own outputs only. If D_j are the second derivatives in them,
    the Hessian has the blocks Σ_j (D_j)_{ab} x_j x_jᵀ / m for the outputs a and b, where x_j ends
    with a 1 if there are biases.

    Args:
        layer: The layer.
        loss: The mean loss over a batch, from outputs and targets.
        inputs: The inputs of the m samples, a row for each.
        targets: Their targets.
    """
    outputs = layer(inputs).detach().requires_grad_()
    [slopes] = torch.autograd.grad(loss(outputs, targets), outputs, create_graph=True)
    x, features, classes = inputs, layer.in_features, layer.out_features
    if layer.bias is not None:
        x = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], 1)
    width = x.shape[1]
    found = x.new_empty(classes, width, classes, width)
    for a in range(classes):
        [curvatures] = torch.autograd.grad(slopes[:, a].sum(), outputs, retain_graph=True)
        for b in range(a + 1):
            block = x.mT @ (curvatures[:, b, None] * x)
            found[a, :, b], found[b, :, a] = block, block
    # So far each output has its weights and its bias side by side; the layer has all biases last.
    places = torch.arange(classes * width, device=x.device).view(classes, width)
    order = torch.cat([places[:, :features].flatten(), places[:, features:].flatten()])
    return found.view(classes * width, -1)[order][:, order]
