"""The ways into Jupyter: the provisioner, kernelspecs, the bridge of a front end, and the sanitizer of displays."""
