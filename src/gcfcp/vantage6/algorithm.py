"""What a task of vantage6 can call: `calibrate` at one node, `answer` at every node.

The image names this module in PKG_NAME, and vantage6 calls whatever attribute of it a task names,
with whatever arguments. So nothing else may be in here: a function that reads a file, for example,
would read any file of the node for anyone.
"""

from gcfcp.vantage6.central import calibrate as calibrate
from gcfcp.vantage6.partial import answer as answer
